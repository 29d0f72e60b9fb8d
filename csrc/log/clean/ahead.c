/* Reading ahead; see ahead.h. A thread for each block: they come seldom, and no thread is left to be kept. */
#include "log/clean/ahead.h"

#include <errno.h>

#include "base/assert.h"

/* The kernel hands a read to the disk without letting anybody else have the CPU: 4 MiB of it take half a millisecond.
 * Smaller steps than these cost the cleaner time, and nobody is better off. */
enum { DIRECT_STEP_BYTES = 512 << 10 };

static int read_past_cache(const pb_clean_ahead *ahead)
{
    for (size_t done = 0; done < ahead->length;) {
        size_t step = ahead->length - done < DIRECT_STEP_BYTES ? ahead->length - done : DIRECT_STEP_BYTES;
        int rc = pb_io_read_blocks(ahead->file->io, ahead->file->direct, ahead->buffer + done, step,
                                   ahead->position + (int64_t)done);
        if (rc != 0)
            return rc;
        done += step;
    }
    return 0;
}

static int read_in_steps(const pb_clean_ahead *ahead)
{
    pb_io *io = ahead->file->io;
    for (size_t done = 0; done < ahead->length;) {
        size_t step = ahead->length - done < PB_POLITE_BYTES ? ahead->length - done : PB_POLITE_BYTES;
        int rc = pb_io_read_all(io, ahead->file->file, ahead->buffer + done, step, ahead->position + (int64_t)done);
        if (rc != 0)
            return rc;
        done += step;
    }
    if (ahead->file->drops)
        (void)io->ops->file_drop(io, ahead->file->file, ahead->position, (int64_t)ahead->length);
    return 0;
}

static enum pb_step read_block(void *context)
{
    pb_clean_ahead *ahead = context;
    const pb_clean_file *file = ahead->file;
    bool is_cold = file->direct >= 0 &&
                   file->io->ops->file_resident(file->io, file->file, ahead->position, (int64_t)ahead->length) == 0;
    /* Where that cannot be done, the usual way can, or says what is wrong. */
    ahead->result = is_cold ? read_past_cache(ahead) : -EOPNOTSUPP;
    if (ahead->result != 0)
        ahead->result = read_in_steps(ahead);
    return PB_STEP_END;
}

void pb_clean_ahead_start(pb_clean_ahead *ahead, int64_t position, size_t length)
{
    pb_io *io = ahead->file->io;
    PB_ASSERT(ahead->thread == NULL && length > 0 && position % PB_DIRECT_BLOCK_BYTES == 0);
    PB_ASSERT((uintptr_t)ahead->buffer % PB_DIRECT_BLOCK_BYTES == 0);
    ahead->position = position;
    ahead->length = length;
    /* It is as nice, to others and to the disk, as the caller. */
    int rc = io->ops->thread_start(io, "clean-ahead", PB_RANK_USUAL, read_block, ahead, &ahead->thread);
    if (rc != 0) {
        ahead->thread = NULL;
        (void)read_block(ahead);
    }
}

int pb_clean_ahead_finish(pb_clean_ahead *ahead)
{
    if (ahead->thread != NULL)
        ahead->file->io->ops->thread_join(ahead->thread);
    ahead->thread = NULL;
    return ahead->result;
}
