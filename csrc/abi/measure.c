/* pybroker_tools.h: measuring this machine. Threads of a tool; everything but opening blocks. */
#include <errno.h>
#include <stdlib.h>

#include "abi/convert.h"
#include "cpu/crc32c.h"
#include "measure/bare_server.h"
#include "measure/cpu_work.h"
#include "measure/exchange.h"
#include "measure/scratch.h"
#include "pybroker_tools.h"

_Static_assert((int)PB_MEASURE_WRITE == (int)PB_SCRATCH_WRITE &&
                   (int)PB_MEASURE_WRITE_DURABLE == (int)PB_SCRATCH_WRITE_DURABLE &&
                   (int)PB_MEASURE_WRITE_SYNC == (int)PB_SCRATCH_WRITE_SYNC &&
                   (int)PB_MEASURE_SYNC == (int)PB_SCRATCH_SYNC && (int)PB_MEASURE_READ == (int)PB_SCRATCH_READ &&
                   (int)PB_MEASURE_CRC32C == (int)PB_CPU_WORK_CRC32C && (int)PB_MEASURE_COPY == (int)PB_CPU_WORK_COPY &&
                   (int)PB_MEASURE_COPY_CRC32C == (int)PB_CPU_WORK_COPY_CRC32C,
               "the same numbers on both sides");

struct pb_measure {
    pb_io *io;
    pb_scratch *scratch;    /* NULL: no directory is used */
    pb_bare_server *server; /* NULL: none runs */
};

static pb_meter_limits limits_from(const pb_measure_limits *limits)
{
    return (pb_meter_limits){limits->budget_ns, limits->max_bytes, limits->stop};
}

static void copy_result(pb_measure_result *out, const pb_meter_result *result)
{
    *out = (pb_measure_result){
        .operations = result->operations,
        .bytes = result->bytes,
        .elapsed_ns = result->elapsed_ns,
        .cpu_ns = result->cpu_ns,
        .min_ns = result->min_ns,
        .p50_ns = result->p50_ns,
        .p90_ns = result->p90_ns,
        .p99_ns = result->p99_ns,
        .p999_ns = result->p999_ns,
        .max_ns = result->max_ns,
    };
}

int32_t pb_measure_open(const char *backend, pb_measure **out, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_measure *measure = calloc(1, sizeof *measure);
    if (measure == NULL)
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -ENOMEM, "measuring"));
    int result = pb_io_open(backend, &measure->io, &inner);
    if (result != 0) {
        free(measure);
        return pb_abi_fail(failure, &inner, result);
    }
    *out = measure;
    return 0;
}

void pb_measure_close(pb_measure *measure)
{
    if (measure->server != NULL)
        pb_bare_server_stop(measure->server, &(pb_bare_server_usage){0});
    if (measure->scratch != NULL)
        pb_scratch_destroy(measure->scratch);
    measure->io->ops->close(measure->io);
    free(measure);
}

const char *pb_measure_backend(const pb_measure *measure)
{
    return measure->io->ops->name;
}

int32_t pb_measure_use_directory(pb_measure *measure, const char *directory, pb_native_failure *failure)
{
    pb_failure inner = {0};
    int result = measure->scratch != NULL ? pb_fail(&inner, -EBUSY, "a directory is in use")
                                          : pb_scratch_create(measure->io, directory, &measure->scratch, &inner);
    return pb_abi_fail(failure, &inner, result);
}

/* Runs over a file need one. */
static int want_scratch(const pb_measure *measure, pb_failure *failure)
{
    return measure->scratch != NULL ? 0 : pb_fail(failure, -ENOENT, "no directory is in use");
}

int32_t pb_measure_drop(pb_measure *measure, pb_native_failure *failure)
{
    pb_failure inner = {0};
    int result = want_scratch(measure, &inner);
    if (result == 0)
        result = pb_scratch_drop(measure->scratch, &inner);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_measure_file(pb_measure *measure, const pb_measure_file_run *run, pb_measure_result *out,
                        pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_scratch_run scratch_run = {
        .operation = (enum pb_scratch_operation)run->operation,
        .is_direct = run->is_direct != 0,
        .is_random = run->is_random != 0,
        .syncs_at_end = run->syncs_at_end != 0,
        .block_bytes = run->block_bytes,
        .position = run->position,
        .length = run->length,
        .pace_bytes = run->pace_bytes,
        .limits = limits_from(&run->limits),
    };
    pb_meter_result result = {0};
    int code = want_scratch(measure, &inner);
    if (code == 0)
        code = pb_scratch_measure(measure->scratch, &scratch_run, &result, &inner);
    copy_result(out, &result);
    return pb_abi_fail(failure, &inner, code);
}

int32_t pb_measure_cpu(pb_measure *measure, int32_t work, const char *crc32c, int64_t block_bytes,
                       const pb_measure_limits *limits, pb_measure_result *out, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_cpu_work cpu_work = {
        .kind = (enum pb_cpu_work_kind)work,
        .crc32c = crc32c,
        .block_bytes = block_bytes,
        .limits = limits_from(limits),
    };
    pb_meter_result result = {0};
    int code = pb_cpu_work_run(measure->io, &cpu_work, &result, &inner);
    copy_result(out, &result);
    return pb_abi_fail(failure, &inner, code);
}

const char *pb_measure_crc32c_name(int32_t index)
{
    const char *const *names = pb_crc32c_names();
    for (int32_t i = 0; names[i] != NULL; i++)
        if (i == index)
            return names[i];
    return NULL;
}

int32_t pb_measure_serve(pb_measure *measure, int64_t answer_bytes, int64_t spin_us, int64_t file_bytes, int32_t *port,
                         pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_bare_server_options options = {
        .answer_bytes = answer_bytes,
        .spin_ns = spin_us * 1000,
        .scratch = file_bytes > 0 ? measure->scratch : NULL,
        .scratch_bytes = file_bytes,
    };
    int code = file_bytes > 0 ? want_scratch(measure, &inner) : 0;
    if (code == 0 && measure->server != NULL)
        code = pb_fail(&inner, -EBUSY, "a server runs already");
    if (code == 0)
        code = pb_bare_server_start(measure->io, &options, &measure->server, port, &inner);
    return pb_abi_fail(failure, &inner, code);
}

void pb_measure_serve_end(pb_measure *measure, int64_t *cpu_ns, int64_t *frames)
{
    pb_bare_server_usage usage = {0};
    if (measure->server != NULL)
        pb_bare_server_stop(measure->server, &usage);
    measure->server = NULL;
    *cpu_ns = usage.cpu_ns;
    *frames = usage.frames;
}

int32_t pb_measure_exchange_run(pb_measure *measure, const pb_measure_exchange *exchange, pb_measure_result *out,
                                pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_exchange_options options = {
        .host = exchange->host,
        .port = exchange->port,
        .connection_count = exchange->connection_count,
        .in_flight = exchange->in_flight,
        .frames = exchange->frames,
        .frame_bytes = exchange->frame_bytes,
        .frame_count = exchange->frame_count,
        .counter_position = exchange->counter_position,
        .counter_step = exchange->counter_step,
        .counter_count = exchange->counter_count,
        .error_position = exchange->error_position,
        .answer_min_bytes = exchange->answer_min_bytes,
        .spin_ns = exchange->spin_us * 1000,
        .limits = limits_from(&exchange->limits),
    };
    pb_meter_result result = {0};
    int code = pb_exchange_measure(measure->io, &options, &result, &inner);
    copy_result(out, &result);
    return pb_abi_fail(failure, &inner, code);
}
