/* pybroker.h: the broker's life, listeners, APIs, metrics. Python's threads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/convert.h"
#include "cpu/crc32c.h"
#include "io/descriptors.h"
#include "record/codec.h"

uint32_t pb_abi_version(void)
{
    return PB_ABI_VERSION;
}

int32_t pb_abi_fail(pb_native_failure *out, const pb_failure *failure, int code)
{
    _Static_assert(sizeof out->text >= PB_FAILURE_TEXT_BYTES, "a failure's text fits");
    if (out != NULL) {
        out->code = code;
        snprintf(out->text, sizeof out->text, "%s", failure->text);
    }
    return code;
}

uint32_t pb_native_crc32c(uint32_t crc, const uint8_t *data, size_t length)
{
    return pb_crc32c(crc, data, length);
}

const char *pb_native_crc32c_name(void)
{
    return pb_crc32c_selected();
}

int64_t pb_native_decompress(int32_t codec, const uint8_t *data, size_t length, uint8_t *out, size_t capacity)
{
    pb_codec *contexts = NULL;
    int result = pb_codec_create(&contexts);
    if (result != 0)
        return result;
    size_t got = 0;
    result = pb_decompress(contexts, codec, data, length, out, capacity, &got, NULL);
    pb_codec_destroy(contexts);
    if (result == -ENOSPC)
        return -E2BIG;
    return result < 0 ? result : result > 0 ? -EINVAL : (int64_t)got;
}

int32_t pb_broker_open(const pb_broker_options *options, pb_broker **out, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_broker_settings settings = {
        .node_id = options->node_id,
        .reactor_count = options->reactor_count,
        .spin_ns = (int64_t)options->spin_us * 1000,
        .buffer_budget_bytes = options->buffer_budget_bytes,
        .max_request_bytes = (uint32_t)options->max_request_bytes,
        .max_connections = options->max_connections,
        .idle_close_ns = options->connections_max_idle_ms * 1000000,
        .fetch_session_slots = options->fetch_session_slots,
        .fetch_max_bytes = options->fetch_max_bytes,
        .history_cache_bytes = options->history_cache_bytes,
        .slow_request_ns = options->slow_request_ms * 1000000,
    };
    if (options->max_request_bytes <= 0 || options->spin_us < 0 || options->slow_request_ms < 0 ||
        options->slow_request_ms > INT64_MAX / 1000000 || options->connections_max_idle_ms > INT64_MAX / 1000000)
        return pb_abi_fail(failure, &inner,
                           pb_fail(&inner, -EINVAL, "a size or time in the broker's options is out of range"));
    pb_io *io = NULL;
    int result = pb_io_open(options->backend, &io, &inner);
    if (result == 0)
        result = pb_broker_create(io, &settings, out, &inner);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_broker_start(pb_broker *broker, pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_broker_run(broker, &inner));
}

void pb_broker_end_requests(pb_broker *broker)
{
    pb_broker_leave(broker);
}

void pb_broker_stop(pb_broker *broker)
{
    pb_broker_halt(broker);
}

void pb_broker_close(pb_broker *broker)
{
    pb_broker_destroy(broker);
}

void pb_broker_limit_connections(pb_broker *broker, int32_t max_connections)
{
    atomic_store_explicit(&broker->settings.max_connections, max_connections, memory_order_relaxed);
}

void pb_process_limit_descriptors(int32_t limit, int32_t kept, int32_t reserve)
{
    pb_descriptors_limit(limit, kept, reserve);
}

int32_t pb_process_descriptor_limit(void)
{
    return pb_descriptors_limit_told();
}

int32_t pb_process_log_descriptors(void)
{
    return pb_descriptors_for_logs();
}

const char *pb_broker_backend(const pb_broker *broker)
{
    return broker->io->ops->name;
}

int32_t pb_native_backend_check(const char *backend, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_io *io = NULL;
    int result = pb_io_open(backend, &io, &inner);
    if (result == 0)
        io->ops->close(io);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_broker_serve_apis(pb_broker *broker, const pb_api_range *ranges, int32_t count)
{
    int result = 0;
    for (int32_t i = 0; i < count && result == 0; i++)
        result = pb_broker_set_apis(broker, ranges[i].api_key, ranges[i].min_version, ranges[i].max_version);
    return result;
}

int32_t pb_broker_listen(pb_broker *broker, const char *name, const char *host, int32_t port, int32_t *bound_port,
                         pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_broker_add_listener(broker, name, host, port, bound_port, &inner));
}
