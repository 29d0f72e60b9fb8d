/*
 * The simulated disk. A write changes what readers see; a sync makes a file's bytes durable, a directory sync its
 * names. After a power cut each sector that was not durable is old or new by a seeded choice, and so is each name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/machine.h"

void sim_drop_file(sim_file *file)
{
    if (file == NULL || --file->references > 0)
        return;
    if (file->ring_bytes > 0)
        sim_store_unmap(file);
    else
        free(file->data);
    free(file->durable);
    free(file->unflushed);
    free(file->pages);
    free(file);
}

static sim_file *keep_file(sim_file *file)
{
    if (file != NULL)
        file->references++;
    return file;
}

sim_name *sim_find_name(sim_disk *disk, const char *path)
{
    for (size_t i = 0; i < disk->name_count; i++)
        if (strcmp(disk->names[i].path, path) == 0)
            return &disk->names[i];
    return NULL;
}

bool sim_exists(const sim_name *name)
{
    return name != NULL && (name->file != NULL || name->is_directory);
}

sim_name *sim_add_name(sim_disk *disk, const char *path)
{
    PB_ASSERT(strlen(path) < PB_SIM_PATH_BYTES);
    sim_name *name = sim_find_name(disk, path);
    if (name != NULL)
        return name;
    sim_name *names = realloc(disk->names, (disk->name_count + 1) * sizeof *names);
    PB_ASSERT(names != NULL);
    disk->names = names;
    name = &disk->names[disk->name_count++];
    memset(name, 0, sizeof *name);
    memcpy(name->path, path, strlen(path) + 1);
    return name;
}

static void reserve(sim_file *file, int64_t size)
{
    if (size <= file->capacity)
        return;
    PB_ASSERT(file->ring_bytes == 0);
    int64_t capacity = size * 2;
    uint8_t *data = realloc(file->data, (size_t)capacity);
    PB_ASSERT(data != NULL);
    file->data = data;
    memset(file->data + file->capacity, 0, (size_t)(capacity - file->capacity));
    file->capacity = capacity;
}

static sim_file *file_of(pb_io *io, int handle)
{
    PB_ASSERT(handle >= 0 && handle < PB_SIM_HANDLES);
    sim_file *file = sim_of(io)->disk.handles[handle];
    PB_ASSERT(file != NULL);
    return file;
}

static int take_handle(sim_disk *disk, sim_file *file, bool direct)
{
    for (int i = 0; i < PB_SIM_HANDLES; i++)
        if (disk->handles[i] == NULL) {
            disk->handles[i] = keep_file(file);
            disk->direct[i] = direct;
            return i;
        }
    return -EMFILE;
}

int sim_file_reopen_direct(pb_io *io, int file)
{
    sim_disk *disk = &sim_of(io)->disk;
    PB_ASSERT(file >= 0 && file < PB_SIM_HANDLES && disk->handles[file] != NULL);
    return take_handle(disk, disk->handles[file], true);
}

int sim_file_open(pb_io *io, const char *path, int flags)
{
    sim_disk *disk = &sim_of(io)->disk;
    if (!(flags & PB_OPEN_WRITE) && sim_would_wait(sim_of(io)))
        return -EAGAIN;
    sim_name *name = sim_find_name(disk, path);
    if (!sim_exists(name) && !(flags & PB_OPEN_CREATE))
        return -ENOENT;
    if (sim_exists(name) && (flags & PB_OPEN_EXCLUSIVE))
        return -EEXIST;
    name = sim_add_name(disk, path);
    if (name->is_directory)
        return -EISDIR;
    if (name->file == NULL) {
        name->file = calloc(1, sizeof *name->file);
        PB_ASSERT(name->file != NULL);
        name->file->references = 1;
        name->file->modified_ms = io->ops->wall_ms(io);
    }
    if (flags & PB_OPEN_TRUNCATE) {
        name->file->size = 0;
        name->file->modified_ms = io->ops->wall_ms(io);
    }
    return take_handle(disk, name->file, (flags & PB_OPEN_DIRECT) != 0);
}

/* A handle of a new file that has no name. */
static int add_unnamed(pb_io *io)
{
    sim_disk *disk = &sim_of(io)->disk;
    for (int i = 0; i < PB_SIM_HANDLES; i++)
        if (disk->handles[i] == NULL) {
            disk->handles[i] = calloc(1, sizeof *disk->handles[i]);
            PB_ASSERT(disk->handles[i] != NULL);
            disk->handles[i]->references = 1;
            disk->handles[i]->modified_ms = io->ops->wall_ms(io);
            disk->direct[i] = false;
            return i;
        }
    return -EMFILE;
}

int sim_file_make_unnamed(pb_io *io, const char *directory)
{
    return sim_exists(sim_find_name(&sim_of(io)->disk, directory)) ? add_unnamed(io) : -ENOENT;
}

int sim_file_name(pb_io *io, int handle, const char *path)
{
    sim_file *file = file_of(io, handle);
    sim_name *name = sim_add_name(&sim_of(io)->disk, path);
    if (sim_exists(name))
        return -EEXIST;
    name->file = keep_file(file);
    return 0;
}

int sim_file_close(pb_io *io, int handle)
{
    sim_drop_file(file_of(io, handle));
    sim_of(io)->disk.handles[handle] = NULL;
    return 0;
}

/* Would a kernel take it for a file that was opened past the page cache? */
static bool aligned(pb_io *io, int handle, const struct iovec *iov, int count, int64_t position)
{
    uint64_t all = (uint64_t)position;
    for (int i = 0; i < count; i++)
        all |= (uint64_t)(uintptr_t)iov[i].iov_base | iov[i].iov_len;
    return !sim_of(io)->disk.direct[handle] || all % PB_DIRECT_BLOCK_BYTES == 0;
}

int64_t sim_file_read(pb_io *io, int handle, void *buffer, size_t length, int64_t position)
{
    sim_machine *machine = sim_of(io);
    sim_file *file = file_of(io, handle);
    struct iovec whole = {buffer, length};
    if (!aligned(io, handle, &whole, 1, position))
        return -EINVAL;
    if (sim_would_wait(machine))
        return -EAGAIN;
    if (position >= file->size)
        return 0;
    int64_t left = file->size - position;
    if ((int64_t)length > left)
        length = (size_t)left;
    bool is_cold = machine->counts_pages && !sim_pages_resident(file, position, (int64_t)length);
    if (machine->read_mode == PB_READ_RESIDENT && is_cold)
        return -EAGAIN;
    if (!machine->disk.direct[handle])
        sim_pages_set(machine, file, position, (int64_t)length, true);
    if (length > 0)
        memcpy(buffer, file->data + position, length);
    return (int64_t)length;
}

static void note_unflushed(sim_file *file, int64_t position, int64_t end)
{
    sim_range *ranges = realloc(file->unflushed, (file->unflushed_count + 1) * sizeof *ranges);
    PB_ASSERT(ranges != NULL);
    ranges[file->unflushed_count++] = (sim_range){position, end};
    file->unflushed = ranges;
}

int64_t sim_file_write(pb_io *io, int handle, const struct iovec *iov, int count, int64_t position)
{
    sim_machine *machine = sim_of(io);
    sim_file *file = file_of(io, handle);
    if (!aligned(io, handle, iov, count, position))
        return -EINVAL;
    int64_t total = 0;
    for (int i = 0; i < count; i++)
        total += (int64_t)iov[i].iov_len;
    int64_t allowed = total;
    bool fails = sim_chance(machine, machine->faults.write_error);
    if (fails)
        allowed = (int64_t)(sim_random(machine) % (uint64_t)(total + 1));
    if (machine->disk.direct[handle])
        allowed -= allowed % PB_SIM_SECTOR_BYTES;
    int64_t done = 0;
    for (int i = 0; i < count && done < allowed; i++) {
        int64_t part = (int64_t)iov[i].iov_len;
        if (part > allowed - done)
            part = allowed - done;
        reserve(file, position + done + part);
        memcpy(file->data + position + done, iov[i].iov_base, (size_t)part);
        done += part;
    }
    if (position + done > file->size && done > 0)
        file->size = position + done;
    file->modified_ms = io->ops->wall_ms(io);
    if (machine->disk.direct[handle] && done > 0)
        note_unflushed(file, position, position + done);
    sim_pages_set(machine, file, position, done, !machine->disk.direct[handle]);
    if (!fails)
        return done;
    return sim_random(machine) % 2 == 0 && done > 0 ? done : sim_random(machine) % 2 == 0 ? -EIO : -ENOSPC;
}

static void make_durable(sim_file *file)
{
    file->unflushed_count = 0;
    free(file->durable);
    file->durable = malloc(file->size > 0 ? (size_t)file->size : 1);
    PB_ASSERT(file->durable != NULL);
    if (file->size > 0)
        memcpy(file->durable, file->data, (size_t)file->size);
    file->durable_size = file->size;
}

int sim_file_sync(pb_io *io, int handle)
{
    sim_machine *machine = sim_of(io);
    sim_file *file = file_of(io, handle);
    if (sim_chance(machine, machine->faults.sync_error))
        return -EIO;
    make_durable(file);
    return 0;
}

/* Only what was written becomes durable, and the length with it. */
static void make_range_durable(sim_file *file, int64_t position, int64_t end)
{
    if (end > file->durable_size) {
        uint8_t *durable = realloc(file->durable, (size_t)end);
        PB_ASSERT(durable != NULL);
        memset(durable + file->durable_size, 0, (size_t)(end - file->durable_size));
        file->durable = durable;
        file->durable_size = end;
    }
    memcpy(file->durable + position, file->data + position, (size_t)(end - position));
}

int64_t sim_file_write_durable(pb_io *io, int handle, const struct iovec *iov, int count, int64_t position)
{
    sim_machine *machine = sim_of(io);
    int64_t wrote = sim_file_write(io, handle, iov, count, position);
    if (wrote <= 0)
        return wrote;
    if (sim_chance(machine, machine->faults.sync_error))
        return -EIO;
    make_range_durable(file_of(io, handle), position, position + wrote);
    return wrote;
}

uint64_t sim_file_flush_device(pb_io *io, int handle)
{
    (void)file_of(io, handle);
    return 1;
}

/* A disk knows of bytes, not of a file's length: what lies behind the one that was synced is not found again. */
static void flush_file(sim_file *file)
{
    for (size_t i = 0; i < file->unflushed_count; i++) {
        int64_t end = file->unflushed[i].end < file->size ? file->unflushed[i].end : file->size;
        if (end > file->durable_size)
            end = file->durable_size;
        if (file->unflushed[i].position < end)
            make_range_durable(file, file->unflushed[i].position, end);
    }
    file->unflushed_count = 0;
}

int sim_device_flush(pb_io *io, int handle)
{
    sim_machine *machine = sim_of(io);
    (void)file_of(io, handle);
    if (sim_chance(machine, machine->faults.sync_error))
        return -EIO;
    for (size_t i = 0; i < machine->disk.name_count; i++)
        if (machine->disk.names[i].file != NULL)
            flush_file(machine->disk.names[i].file);
    return 0;
}

int sim_file_truncate(pb_io *io, int handle, int64_t size)
{
    sim_file *file = file_of(io, handle);
    reserve(file, size);
    if (size < file->size)
        memset(file->data + size, 0, (size_t)(file->size - size));
    file->size = size;
    file->modified_ms = io->ops->wall_ms(io);
    return 0;
}

/* Allocating, starting writeback: nothing a reader or a crash could tell. */
int sim_file_range(pb_io *io, int handle, int64_t position, int64_t length)
{
    (void)file_of(io, handle);
    PB_ASSERT(position >= 0 && length >= 0);
    return 0;
}

/* All from `position` on when `length` is 0. */
int sim_file_drop(pb_io *io, int handle, int64_t position, int64_t length)
{
    sim_file *file = file_of(io, handle);
    int64_t left = file->size > position ? file->size - position : 0;
    sim_pages_set(sim_of(io), file, position, length == 0 || length > left ? left : length, false);
    return 0;
}

int sim_file_resident(pb_io *io, int handle, int64_t position, int64_t length)
{
    sim_machine *machine = sim_of(io);
    const sim_file *file = file_of(io, handle);
    bool resident = !machine->counts_pages || sim_pages_resident(file, position, length);
    return resident && !sim_chance(machine, machine->faults.cold_read);
}

int sim_file_bring_in(pb_io *io, int handle, int64_t position, int64_t length)
{
    sim_file *file = file_of(io, handle);
    if (position + length > file->size)
        return -ENODATA;
    sim_pages_set(sim_of(io), file, position, length, true);
    return 0;
}

int64_t sim_file_size(pb_io *io, int handle)
{
    return file_of(io, handle)->size;
}

int64_t sim_file_modified_ms(pb_io *io, int handle)
{
    return file_of(io, handle)->modified_ms;
}

int64_t sim_path_size(pb_io *io, const char *path)
{
    const sim_name *name = sim_find_name(&sim_of(io)->disk, path);
    return name == NULL || name->file == NULL ? -ENOENT : name->file->size;
}

/* It is never full by itself. */
int64_t sim_path_free_bytes(pb_io *io, const char *path)
{
    (void)io;
    (void)path;
    return INT64_MAX;
}

/* Cut by cut, each of which a crash may come before. */
int sim_path_drain(pb_io *io, const char *path, int64_t piece_bytes, int64_t *taken_bytes)
{
    sim_disk *disk = &sim_of(io)->disk;
    const sim_name *name = sim_find_name(disk, path);
    *taken_bytes = 0;
    if (!sim_exists(name) || name->is_directory)
        return sim_exists(name) ? -EISDIR : -ENOENT;
    for (int i = 0; i < PB_SIM_HANDLES; i++)
        if (disk->handles[i] == name->file)
            return -EBUSY;
    int64_t size = name->file->size;
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE);
    int result = file < 0 ? file : 0;
    for (; result == 0 && size > piece_bytes; size /= 2)
        result = io->ops->file_truncate(io, file, size / 2);
    if (file >= 0)
        (void)io->ops->file_close(io, file);
    return result;
}

/* From now on a power cut finds both names as they were, or both as they are. */
static void tie_names(sim_disk *disk, sim_name *one, sim_name *other)
{
    uint32_t first = one->group;
    uint32_t second = other->group;
    uint32_t group = ++disk->group_count;
    for (size_t i = 0; i < disk->name_count; i++) {
        sim_name *name = &disk->names[i];
        if (name == one || name == other || (name->group != 0 && (name->group == first || name->group == second)))
            name->group = group;
    }
}

int sim_rename(pb_io *io, const char *from, const char *to)
{
    sim_disk *disk = &sim_of(io)->disk;
    sim_name *target = sim_add_name(disk, to); /* first: it may move the names */
    sim_name *source = sim_find_name(disk, from);
    if (!sim_exists(source))
        return -ENOENT;
    if (source->is_directory) {
        size_t length = strlen(from);
        for (size_t i = 0; i < disk->name_count; i++) {
            sim_name *name = &disk->names[i];
            if (strncmp(name->path, from, length) != 0 || name->path[length] != '/')
                continue;
            char path[2 * PB_SIM_PATH_BYTES];
            snprintf(path, sizeof path, "%s%s", to, name->path + length);
            PB_ASSERT(strlen(path) < PB_SIM_PATH_BYTES);
            memcpy(name->path, path, strlen(path) + 1);
        }
        source->is_directory = false;
        target->is_directory = true;
        return 0;
    }
    sim_drop_file(target->file);
    target->file = source->file;
    source->file = NULL;
    tie_names(disk, source, target);
    return 0;
}

int sim_unlink(pb_io *io, const char *path)
{
    sim_name *name = sim_find_name(&sim_of(io)->disk, path);
    if (!sim_exists(name))
        return -ENOENT;
    sim_drop_file(name->file);
    name->file = NULL;
    return 0;
}

int sim_directory_make(pb_io *io, const char *path)
{
    if (sim_exists(sim_find_name(&sim_of(io)->disk, path)))
        return -EEXIST;
    sim_add_name(&sim_of(io)->disk, path)->is_directory = true;
    return 0;
}

/* The rest of a name's path when it lies directly in the directory, or NULL. */
static const char *inside(const sim_name *name, const char *directory)
{
    size_t length = strlen(directory);
    if (strncmp(name->path, directory, length) != 0 || name->path[length] != '/')
        return NULL;
    const char *rest = name->path + length + 1;
    return strchr(rest, '/') == NULL ? rest : NULL;
}

int sim_directory_remove(pb_io *io, const char *path)
{
    sim_disk *disk = &sim_of(io)->disk;
    sim_name *name = sim_find_name(disk, path);
    if (name == NULL || !name->is_directory)
        return -ENOENT;
    for (size_t i = 0; i < disk->name_count; i++)
        if (sim_exists(&disk->names[i]) && inside(&disk->names[i], path) != NULL)
            return -ENOTEMPTY;
    name->is_directory = false;
    return 0;
}

static void make_name_durable(sim_name *name)
{
    sim_file *before = name->durable;
    name->durable = keep_file(name->file);
    name->group = 0;
    sim_drop_file(before);
}

int sim_directory_sync(pb_io *io, const char *path)
{
    sim_disk *disk = &sim_of(io)->disk;
    for (size_t i = 0; i < disk->name_count; i++)
        if (inside(&disk->names[i], path) != NULL)
            make_name_durable(&disk->names[i]);
    return 0;
}

/* There is one file system; its handle is that of a file without a name. */
int sim_filesystem_open(pb_io *io, const char *path)
{
    return sim_exists(sim_find_name(&sim_of(io)->disk, path)) ? add_unnamed(io) : -ENOENT;
}

int sim_filesystem_sync(pb_io *io, int filesystem)
{
    sim_machine *machine = sim_of(io);
    (void)file_of(io, filesystem);
    if (sim_chance(machine, machine->faults.sync_error))
        return -EIO;
    for (size_t i = 0; i < machine->disk.name_count; i++) {
        sim_name *name = &machine->disk.names[i];
        if (name->file != NULL)
            make_durable(name->file);
        make_name_durable(name);
    }
    return 0;
}

int sim_filesystem_holds(pb_io *io, int filesystem, const char *path)
{
    (void)file_of(io, filesystem);
    return sim_exists(sim_find_name(&sim_of(io)->disk, path)) ? 1 : -ENOENT;
}

int sim_directory_list(pb_io *io, const char *path, pb_directory_visit visit, void *context)
{
    sim_disk *disk = &sim_of(io)->disk;
    if (!sim_exists(sim_find_name(disk, path)))
        return -ENOENT;
    int result = 0;
    for (size_t i = 0; i < disk->name_count && result == 0; i++) {
        const char *rest = sim_exists(&disk->names[i]) ? inside(&disk->names[i], path) : NULL;
        if (rest == NULL)
            continue;
        char entry[PB_SIM_PATH_BYTES]; /* the visitor may add names, which moves them */
        snprintf(entry, sizeof entry, "%s", rest);
        result = visit(context, entry, disk->names[i].is_directory);
    }
    return result;
}

/* ---- crashes ---- */

static sim_file *copy_written(const sim_file *from)
{
    sim_file *file = calloc(1, sizeof *file);
    PB_ASSERT(file != NULL);
    reserve(file, from->size > 0 ? from->size : 1);
    if (from->size > 0)
        memcpy(file->data, from->data, (size_t)from->size);
    file->size = from->size;
    return file;
}

static void cut_file(sim_machine *machine, sim_file *file, const sim_file *from)
{
    int64_t shorter = from->durable_size < from->size ? from->durable_size : from->size;
    int64_t longer = from->durable_size < from->size ? from->size : from->durable_size;
    file->size = shorter + (int64_t)(sim_random(machine) % (uint64_t)(longer - shorter + 1));
    reserve(file, longer > 0 ? longer : 1);
    for (int64_t at = 0; at < file->size; at += PB_SIM_SECTOR_BYTES) {
        int64_t end = at + PB_SIM_SECTOR_BYTES < file->size ? at + PB_SIM_SECTOR_BYTES : file->size;
        bool new_bytes = sim_random(machine) % 2 == 0;
        const uint8_t *source = new_bytes ? from->data : from->durable;
        int64_t have = (new_bytes ? from->size : from->durable_size) - at;
        memset(file->data + at, 0, (size_t)(end - at));
        if (have > 0)
            memcpy(file->data + at, source + at, (size_t)(have < end - at ? have : end - at));
    }
}

void sim_disk_copy(sim_machine *to, const sim_machine *from, enum pb_sim_crash crash)
{
    uint64_t grouped = sim_random(to);
    for (size_t i = 0; i < from->disk.name_count; i++) {
        const sim_name *old = &from->disk.names[i];
        if (crash == PB_SIM_POWER_CUT && sim_on_tmpfs(old->path))
            continue;
        sim_name *name = sim_add_name(&to->disk, old->path);
        name->is_directory = old->is_directory;
        /* One choice for all of a group, another one each for the rest. */
        uint64_t choice =
            old->group == 0 ? sim_random(to) : ((grouped ^ old->group) * UINT64_C(0x9E3779B97F4A7C15)) >> 40;
        bool current = crash == PB_SIM_KILL || choice % 2 == 0;
        const sim_file *file = current ? old->file : old->durable;
        if (file == NULL)
            continue;
        name->file = copy_written(file);
        if (crash == PB_SIM_POWER_CUT)
            cut_file(to, name->file, file);
        name->file->references = 2;
        name->file->modified_ms = file->modified_ms;
        name->durable = name->file; /* what is found after a crash is on the disk */
        name->file->durable = malloc((size_t)name->file->size + 1);
        PB_ASSERT(name->file->durable != NULL);
        memcpy(name->file->durable, name->file->data, (size_t)name->file->size);
        name->file->durable_size = name->file->size;
    }
}

void sim_disk_free(sim_disk *disk)
{
    for (size_t i = 0; i < disk->name_count; i++) {
        sim_drop_file(disk->names[i].file);
        sim_drop_file(disk->names[i].durable);
    }
    for (int i = 0; i < PB_SIM_HANDLES; i++) {
        sim_drop_file(disk->handles[i]);
        sim_drop_file(disk->stores[i]);
    }
    free(disk->names);
}
