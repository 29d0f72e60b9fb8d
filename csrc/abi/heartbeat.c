/* pybroker.h: heartbeats. Python's threads. */
#include "server/heartbeat.h"

#include <errno.h>

#include "abi/convert.h"

int32_t pb_heartbeat_open(pb_broker *broker, const pb_heartbeat_options *options, pb_heartbeat **out,
                          pb_native_failure *failure)
{
    pb_failure inner = {0};
    if (options->port < 1 || options->port > 65535 || options->address == NULL || options->interval_ms < 1 ||
        options->limit_ms < 1)
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -EINVAL, "heartbeats need an address and times"));
    pb_address address;
    pb_io *io = broker->io;
    int result = io->ops->address_find(io, options->address, options->port, &address, 1, &inner);
    if (result < 1)
        return pb_abi_fail(failure, &inner, result < 0 ? result : -EINVAL);
    result =
        pb_heartbeat_create(broker, &address, options->interval_ms * 1000000LL, options->limit_ms * 1000000LL, out);
    if (result != 0)
        (void)pb_fail(&inner, result, "no memory for heartbeats");
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_heartbeat_feed(pb_heartbeat *heartbeat, const uint8_t *frame, int32_t length)
{
    if (length < 1 || length > PB_HEARTBEAT_FRAME_BYTES)
        return -EINVAL;
    return pb_heartbeat_take(heartbeat, frame, (size_t)length);
}

int64_t pb_heartbeat_sent(pb_heartbeat *heartbeat)
{
    return pb_counter_read(&heartbeat->sent_count);
}

void pb_heartbeat_close(pb_heartbeat *heartbeat)
{
    pb_heartbeat_end(heartbeat);
}
