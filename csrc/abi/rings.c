/* pybroker.h: tail rings, of a broker and without one. Blocks; on a worker thread or a tool's. */
#include <errno.h>
#include <string.h>

#include "abi/convert.h"
#include "log/engine/ring_replay.h"

_Static_assert(PB_RING_UUID_BYTES == PB_UUID_BYTES && PB_BOOT_ID_BYTES == PB_UUID_BYTES &&
                   sizeof((pb_ring_file){0}.topic) == PB_RING_TOPIC_BYTES,
               "the same on both sides");

int32_t pb_broker_use_rings(pb_broker *broker, const pb_broker_rings *rings, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_ring_pool_options options = {
        .io = broker->io,
        .directory = rings->directory,
        .budget_bytes = rings->budget_bytes,
        .ring_bytes = rings->ring_bytes,
    };
    broker->hot_bytes_per_second = rings->hot_bytes_per_second;
    if (broker->rings != NULL)
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -EEXIST, "this broker has tail rings already"));
    memcpy(options.session_id, rings->session_id, sizeof(options.session_id));
    int result = pb_ring_pool_open(&options, &broker->rings, &inner);
    broker->flusher.rings = broker->rings;
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_broker_add_log_dir(pb_broker *broker, const char *path, const uint8_t *directory_id)
{
    return broker->rings != NULL ? pb_ring_pool_add_log_dir(broker->rings, path, directory_id) : -EINVAL;
}

void pb_broker_ring_stats_read(pb_broker *broker, pb_broker_ring_stats *out)
{
    pb_ring_pool_stats stats = {0};
    if (broker->rings != NULL)
        pb_ring_pool_stats_read(broker->rings, &stats);
    *out = (pb_broker_ring_stats){stats.budget_bytes, stats.used_bytes, stats.ring_count, stats.taken_count};
}

int32_t pb_ring_file_read(const char *path, pb_ring_file *out, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_io *io;
    int rc = pb_io_open("epoll", &io, &inner);
    if (rc != 0)
        return pb_abi_fail(failure, &inner, rc);
    pb_ring_content content = {0};
    rc = pb_ring_inspect(io, path, &content, &inner);
    io->ops->close(io);
    if (rc != 0 && rc != -EBADMSG)
        return pb_abi_fail(failure, &inner, rc);
    *out = (pb_ring_file){
        .ring_bytes = content.ring_bytes,
        .segment_base = content.segment_base,
        .start_position = content.start_position,
        .end_position = content.end_position,
        .sealed = content.sealed,
        .partition = content.identity.partition,
    };
    memcpy(out->directory_id, content.identity.directory_id, sizeof(out->directory_id));
    memcpy(out->topic_id, content.identity.topic_id, sizeof(out->topic_id));
    memcpy(out->boot_id, content.boot_id, sizeof(out->boot_id));
    memcpy(out->session_id, content.session_id, sizeof(out->session_id));
    memcpy(out->topic, content.identity.topic, sizeof(out->topic) - 1);
    return pb_abi_fail(failure, &inner, rc);
}

int32_t pb_ring_file_replay(const char *path, const char *log_directory, int32_t look, int64_t *moved_bytes,
                            pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_io *io;
    int rc = pb_io_open("epoll", &io, &inner);
    if (rc != 0)
        return pb_abi_fail(failure, &inner, rc);
    pb_ring_content content;
    rc = pb_ring_inspect(io, path, &content, &inner);
    if (rc == 0 && !content.sealed)
        rc = pb_fail(&inner, -ENODATA, "nothing is in the tail ring %s", path);
    if (rc == 0)
        rc = pb_ring_replay(io, path, &content, log_directory, look != 0, moved_bytes, &inner);
    io->ops->close(io);
    return pb_abi_fail(failure, &inner, rc);
}

int32_t pb_machine_boot_id(uint8_t *out)
{
    pb_io *io;
    int rc = pb_io_open("epoll", &io, NULL);
    if (rc != 0)
        return rc;
    rc = io->ops->boot_id(io, out);
    io->ops->close(io);
    return rc;
}
