/*
 * Whether fdatasync of one file makes durable what direct writes have put into blocks of others, blocks that were
 * written and synced before.
 *
 * ext4 alone is known for it. Its fdatasync flushes the device whether or not the file has anything to write; without a
 * journal it does so since Linux 6.5. A block that has been written stays where it is. Others copy on write, lie on
 * several disks, or have a log that tells what is durable. Files of ext4 that have no direct I/O are written through
 * the page cache all the same: those with data=journal or verity, and encrypted ones, unless the hardware does it.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/linux/posix.h"

#define TEXT_BYTES 16

/* The first bytes of what the kernel says of the queue of a disk, or of the disk that a partition lies on. */
static bool read_queue(const struct statx *facts, const char *name, char text[TEXT_BYTES])
{
    static const char *const places[] = {"queue", "../queue"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/%s", facts->stx_dev_major, facts->stx_dev_minor, places[i],
                 name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        ssize_t length = read(file, text, TEXT_BYTES - 1);
        close(file);
        text[length > 0 ? length : 0] = '\0';
        return length > 0;
    }
    return false;
}

/* Is a flush a command of its own there? Else a durable write is a plain one (FUA, or no cache that forgets). */
static bool has_flushes(const struct statx *facts)
{
    char cache[TEXT_BYTES], forced[TEXT_BYTES];
    return read_queue(facts, "write_cache", cache) && strncmp(cache, "write back", 10) == 0 &&
           read_queue(facts, "fua", forced) && forced[0] == '0';
}

uint64_t pb_posix_file_flush_device(pb_io *io, int file)
{
    (void)io;
    struct statfs system;
    struct statx facts;
    if (!pb_posix_kernel_is(6, 5) || fstatfs(file, &system) != 0 || system.f_type != EXT4_SUPER_MAGIC ||
        statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) != 0)
        return 0;
    bool is_direct = (facts.stx_mask & STATX_DIOALIGN) != 0 && facts.stx_dio_mem_align > 0 &&
                     facts.stx_dio_mem_align <= PB_DIRECT_BLOCK_BYTES &&
                     facts.stx_dio_offset_align <= PB_DIRECT_BLOCK_BYTES &&
                     (facts.stx_attributes & STATX_ATTR_DAX) == 0;
    return is_direct && has_flushes(&facts) ? makedev(facts.stx_dev_major, facts.stx_dev_minor) : 0;
}
