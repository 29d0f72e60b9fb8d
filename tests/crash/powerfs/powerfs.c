/*
 * powerfs: a FUSE file system of one file, `disk`, that behaves like a drive with a volatile cache.
 *
 *     powerfs <mount point> <image>
 *
 * `image` is what survives a loss of power. Reads see every write; a write reaches the image only with the next flush
 * (fsync of the file, which is what a loop device makes of a block flush). A line `cut <seed> <percent>` on standard
 * input cuts the power: each sector that no flush has reached is kept with that chance and dropped otherwise. From then
 * on the image does not change any more, while the file goes on working, so that the kernel can be taken off it in
 * order. Lines `fail read|write|flush <errno>` let every such request fail from then on, 0 lets them succeed again, and
 * `slow read|write|flush <ms>` let each wait so long.
 * Standard output says `ready`, `cut <sectors not flushed> <sectors kept>`, `fail <errno>` and `slow <ms>`. Ends when
 * it is unmounted.
 *
 * One thread. Needs root, to mount without a helper. Ends with a message when a system call fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SECTOR_BYTES = 512, MAX_WRITE_BYTES = 1 << 20, REQUEST_BYTES = MAX_WRITE_BYTES + 4096, DISK_INODE = 2 };

enum { OP_READ, OP_WRITE, OP_FLUSH, OPERATIONS };

static const char *const operation_names[OPERATIONS] = {"read", "write", "flush"};

/* The drive. `current` is a private mapping of the image: what is written to it stays in memory. */
typedef struct drive {
    int image;
    uint8_t *current;
    uint64_t size_bytes;
    uint8_t *dirty; /* one byte per sector that no flush has reached */
    uint64_t sector_count;
    bool dead;
    int failing[OPERATIONS];  /* errno, or 0 */
    int delay_ms[OPERATIONS]; /* each such request takes at least so long, one after the other */
} drive;

static int fuse_fd;
static uint8_t request[REQUEST_BYTES] __attribute__((aligned(8)));

static void die(const char *what)
{
    fprintf(stderr, "powerfs: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void drive_open(drive *it, const char *path)
{
    struct stat stat;
    it->image = open(path, O_RDWR | O_CLOEXEC);
    if (it->image < 0 || fstat(it->image, &stat) != 0)
        die(path);
    it->size_bytes = (uint64_t)stat.st_size / SECTOR_BYTES * SECTOR_BYTES;
    it->sector_count = it->size_bytes / SECTOR_BYTES;
    it->current = mmap(NULL, it->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, it->image, 0);
    it->dirty = calloc(it->sector_count, 1);
    it->dead = false;
    memset(it->failing, 0, sizeof it->failing);
    memset(it->delay_ms, 0, sizeof it->delay_ms);
    if (it->current == MAP_FAILED || it->dirty == NULL)
        die("cannot map the image");
}

/* Make sectors [first, end) as they are now part of what survives. */
static void drive_keep(drive *it, uint64_t first, uint64_t end)
{
    while (first < end) {
        ssize_t done = pwrite(it->image, it->current + first * SECTOR_BYTES, (end - first) * SECTOR_BYTES,
                              (off_t)(first * SECTOR_BYTES));
        if (done <= 0 || done % SECTOR_BYTES != 0)
            die("cannot write the image");
        first += (uint64_t)done / SECTOR_BYTES;
    }
}

static void drive_flush(drive *it)
{
    for (uint64_t first = 0; first < it->sector_count && !it->dead; first++) {
        if (!it->dirty[first])
            continue;
        uint64_t end = first;
        while (end < it->sector_count && it->dirty[end])
            it->dirty[end++] = 0;
        drive_keep(it, first, end);
        first = end - 1;
    }
}

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64: any seed will do, and equal seeds give equal cuts. */
    uint64_t value = *state += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static void drive_cut(drive *it, uint64_t seed, unsigned percent)
{
    uint64_t unflushed = 0, kept = 0;
    for (uint64_t sector = 0; sector < it->sector_count; sector++) {
        if (!it->dirty[sector])
            continue;
        unflushed++;
        if (next_random(&seed) % 100 < percent) {
            kept++;
            drive_keep(it, sector, sector + 1);
        }
    }
    it->dead = true;
    printf("cut %llu %llu\n", (unsigned long long)unflushed, (unsigned long long)kept);
    fflush(stdout);
}

/* Have `value` for the operation from now on; `what` is the command that said so. */
static void set_for(int values[OPERATIONS], const char *what, const char *operation, int value)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(operation, operation_names[i]) == 0)
            values[i] = value;
    printf("%s %d\n", what, value);
    fflush(stdout);
}

static void reply(uint64_t unique, int error, const void *data, size_t length)
{
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + length), .error = error, .unique = unique};
    struct iovec iov[2] = {{&header, sizeof header}, {(void *)(uintptr_t)data, length}};
    /* ENOENT: whoever asked was interrupted and is gone. */
    if (writev(fuse_fd, iov, 2) < 0 && errno != ENOENT)
        die("cannot answer the kernel");
}

static struct fuse_attr attributes(const drive *it, uint64_t inode)
{
    struct fuse_attr attr = {.ino = inode, .nlink = 1, .blksize = 4096};
    attr.mode = inode == DISK_INODE ? S_IFREG | 0600 : S_IFDIR | 0700;
    attr.size = inode == DISK_INODE ? it->size_bytes : 0;
    attr.blocks = attr.size / 512;
    return attr;
}

static void do_init(uint64_t unique, const struct fuse_init_in *in)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
    out.max_readahead = in->max_readahead;
    out.flags = in->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_READ);
    out.max_write = MAX_WRITE_BYTES;
    out.max_pages = MAX_WRITE_BYTES / 4096;
    out.max_background = 32;
    out.congestion_threshold = 24;
    reply(unique, 0, &out, sizeof out);
}

static void do_lookup(const drive *it, uint64_t unique, uint64_t parent, const char *name)
{
    if (parent != FUSE_ROOT_ID || strcmp(name, "disk") != 0) {
        reply(unique, -ENOENT, NULL, 0);
        return;
    }
    struct fuse_entry_out out = {.nodeid = DISK_INODE, .entry_valid = 3600, .attr_valid = 3600};
    out.attr = attributes(it, DISK_INODE);
    reply(unique, 0, &out, sizeof out);
}

static void do_read(const drive *it, uint64_t unique, const struct fuse_read_in *in)
{
    uint64_t offset = in->offset < it->size_bytes ? in->offset : it->size_bytes;
    uint64_t left = it->size_bytes - offset;
    reply(unique, 0, it->current + offset, in->size < left ? in->size : left);
}

static void do_write(drive *it, uint64_t unique, const struct fuse_write_in *in, size_t body_bytes)
{
    if (sizeof *in + in->size > body_bytes || in->offset > it->size_bytes || in->size > it->size_bytes - in->offset) {
        reply(unique, -ENOSPC, NULL, 0);
        return;
    }
    memcpy(it->current + in->offset, in + 1, in->size);
    for (uint64_t at = in->offset / SECTOR_BYTES; at * SECTOR_BYTES < in->offset + in->size; at++)
        it->dirty[at] = 1;
    struct fuse_write_out out = {.size = in->size};
    reply(unique, 0, &out, sizeof out);
}

/* true: it was refused, because such requests shall fail. Waits where they shall be slow. */
static bool refused(const drive *it, const struct fuse_in_header *header)
{
    int operation = header->opcode == FUSE_READ    ? OP_READ
                    : header->opcode == FUSE_WRITE ? OP_WRITE
                    : header->opcode == FUSE_FSYNC ? OP_FLUSH
                                                   : OPERATIONS;
    if (operation < OPERATIONS && it->delay_ms[operation] > 0)
        usleep((useconds_t)it->delay_ms[operation] * 1000);
    if (operation == OPERATIONS || it->failing[operation] == 0)
        return false;
    reply(header->unique, -it->failing[operation], NULL, 0);
    return true;
}

static void serve(drive *it, const struct fuse_in_header *header, size_t length)
{
    if (refused(it, header))
        return;
    const void *body = header + 1;
    struct fuse_attr_out attr = {.attr_valid = 3600, .attr = attributes(it, header->nodeid)};
    struct fuse_open_out opened = {.fh = 0};
    struct fuse_statfs_out statfs = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
    switch (header->opcode) {
    case FUSE_INIT:
        do_init(header->unique, body);
        break;
    case FUSE_LOOKUP:
        do_lookup(it, header->unique, header->nodeid, body);
        break;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        reply(header->unique, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        reply(header->unique, 0, &opened, sizeof opened);
        break;
    case FUSE_READ:
        do_read(it, header->unique, body);
        break;
    case FUSE_WRITE:
        do_write(it, header->unique, body, length - sizeof *header);
        break;
    case FUSE_FSYNC:
        drive_flush(it);
        reply(header->unique, 0, NULL, 0);
        break;
    case FUSE_STATFS:
        reply(header->unique, 0, &statfs, sizeof statfs);
        break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_READDIR:
    case FUSE_DESTROY:
        reply(header->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; /* they have no answer */
    default:
        reply(header->unique, -ENOSYS, NULL, 0);
    }
}

/* false: it was unmounted. */
static bool serve_one(drive *it)
{
    ssize_t length = read(fuse_fd, request, sizeof request);
    if (length < 0 && errno == ENODEV)
        return false;
    if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
        return true;
    if (length < (ssize_t)sizeof(struct fuse_in_header))
        die("cannot read from the kernel");
    serve(it, (const struct fuse_in_header *)(const void *)request, (size_t)length);
    return true;
}

/* false: whoever gives commands is gone. */
static bool obey(drive *it)
{
    char line[128];
    unsigned long long seed;
    unsigned percent;
    char operation[16];
    int error, delay_ms;
    if (fgets(line, sizeof line, stdin) == NULL)
        return false;
    if (sscanf(line, "cut %llu %u", &seed, &percent) == 2)
        drive_cut(it, seed, percent);
    else if (sscanf(line, "fail %15s %d", operation, &error) == 2)
        set_for(it->failing, "fail", operation, error);
    else if (sscanf(line, "slow %15s %d", operation, &delay_ms) == 2)
        set_for(it->delay_ms, "slow", operation, delay_ms);
    else
        fprintf(stderr, "powerfs: unknown command: %s", line);
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: powerfs <mount point> <image>\n");
        return 2;
    }
    drive it;
    drive_open(&it, argv[2]);
    fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse_fd < 0)
        die("/dev/fuse");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse_fd);
    if (mount("powerfs", argv[1], "fuse.powerfs", MS_NOSUID | MS_NODEV, options) != 0)
        die("cannot mount");
    printf("ready\n");
    fflush(stdout);
    struct pollfd waits[2] = {{.fd = fuse_fd, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    for (;;) {
        if (poll(waits, 2, -1) < 0 && errno != EINTR)
            die("poll");
        if (waits[1].revents != 0 && !obey(&it))
            waits[1].fd = -1;
        if (waits[0].revents != 0 && !serve_one(&it))
            return 0;
    }
}
