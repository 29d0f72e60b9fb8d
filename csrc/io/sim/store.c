/*
 * The simulated machine's stores: files below PB_SIM_TMPFS. The ring has to lie in memory twice in a row, which only a
 * mapping can do. Nothing of it is seen outside, and no choice depends on where it lies.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/sim/machine.h"

bool sim_on_tmpfs(const char *path)
{
    size_t length = strlen(PB_SIM_TMPFS);
    return strncmp(path, PB_SIM_TMPFS, length) == 0 && path[length] == '/';
}

int sim_store_directory(pb_io *io, const char *path, pb_failure *failure)
{
    sim_name *name = sim_find_name(&sim_of(io)->disk, path);
    if (!sim_on_tmpfs(path))
        return pb_fail(failure, -EINVAL, "the tail ring directory %s is not on tmpfs", path);
    if (sim_exists(name) && !name->is_directory)
        return pb_fail(failure, -ENOTDIR, "cannot open the tail ring directory %s", path);
    sim_add_name(&sim_of(io)->disk, path)->is_directory = true;
    return 0;
}

/* Where all of the file lies; the ring lies once more before it. */
static uint8_t *map_twice(size_t ring_bytes)
{
    const size_t once = ring_bytes + PB_STORE_HEAD_BYTES;
    const int flags = MAP_SHARED | MAP_FIXED;
    int fd = memfd_create("pybroker-sim", MFD_CLOEXEC);
    PB_ASSERT(fd >= 0 && ftruncate(fd, (off_t)once) == 0);
    uint8_t *base = mmap(NULL, once + ring_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PB_ASSERT(base != MAP_FAILED);
    void *first = mmap(base, ring_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    void *second = mmap(base + ring_bytes, once, PROT_READ | PROT_WRITE, flags, fd, 0);
    PB_ASSERT(first == base && second == base + ring_bytes);
    close(fd);
    return base + ring_bytes;
}

int sim_store_create(pb_io *io, const char *path, size_t ring_bytes, pb_store *out)
{
    sim_disk *disk = &sim_of(io)->disk;
    PB_ASSERT(ring_bytes > 0 && ring_bytes % PB_DIRECT_BLOCK_BYTES == 0);
    if (!sim_on_tmpfs(path))
        return -EINVAL;
    if (sim_exists(sim_find_name(disk, path)))
        return -EEXIST;
    sim_file *file = calloc(1, sizeof *file);
    PB_ASSERT(file != NULL);
    file->references = 2; /* the name and the store */
    file->ring_bytes = ring_bytes;
    file->data = map_twice(ring_bytes);
    file->size = file->capacity = (int64_t)(PB_STORE_HEAD_BYTES + ring_bytes);
    file->modified_ms = io->ops->wall_ms(io);
    sim_add_name(disk, path)->file = file;
    for (int i = 0; i < PB_SIM_HANDLES; i++)
        if (disk->stores[i] == NULL) {
            disk->stores[i] = file;
            *out =
                (pb_store){.head = file->data + ring_bytes, .ring = file->data - ring_bytes, .ring_bytes = ring_bytes};
            return 0;
        }
    PB_ASSERT(!"too many stores");
    return -EMFILE;
}

void sim_store_close(pb_io *io, pb_store *store)
{
    sim_disk *disk = &sim_of(io)->disk;
    for (int i = 0; i < PB_SIM_HANDLES; i++)
        if (disk->stores[i] != NULL && disk->stores[i]->data + store->ring_bytes == store->head) {
            sim_drop_file(disk->stores[i]);
            disk->stores[i] = NULL;
            *store = (pb_store){0};
            return;
        }
    PB_ASSERT(!"a store is closed once");
}

bool sim_store_stands(pb_io *io, const char *path, const pb_store *store)
{
    const sim_name *name = sim_find_name(&sim_of(io)->disk, path);
    return sim_exists(name) && name->file != NULL && name->file->data + store->ring_bytes == store->head;
}

void sim_store_unmap(sim_file *file)
{
    munmap(file->data - file->ring_bytes, 2 * file->ring_bytes + PB_STORE_HEAD_BYTES);
}

const uint8_t *sim_zeros(pb_io *io)
{
    static _Alignas(PB_DIRECT_BLOCK_BYTES) const uint8_t zeros[PB_ZEROS_BYTES];
    (void)io;
    return zeros;
}

int sim_boot_id(pb_io *io, uint8_t id[PB_BOOT_ID_BYTES])
{
    memcpy(id, sim_of(io)->boot_id, PB_BOOT_ID_BYTES);
    return 0;
}
