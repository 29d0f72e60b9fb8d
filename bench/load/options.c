/* See options.h. */
#include "options.h"

#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { STRING, U32, REAL, U64 };

struct option_row {
    const char *name;
    enum kind kind;
    size_t position; /* of the field in struct pbl_options */
    const char *help;
};

#define FIELD(member) offsetof(struct pbl_options, member)

static const struct option_row ROWS[] = {
    {"host", STRING, FIELD(host), "address of the broker (127.0.0.1)"},
    {"topic", STRING, FIELD(topic), "topic, created if missing; for metadata the name prefix (pbload)"},
    {"topic-config", STRING, FIELD(topic_config), "configs of created topics, key=value[,key=value]"},
    {"group", STRING, FIELD(group), "group id prefix (pbload)"},
    {"connections", U32, FIELD(connection_count), "connections (1)"},
    {"in-flight", U32, FIELD(in_flight_count), "requests in flight per connection (1)"},
    {"partitions", U32, FIELD(partition_count), "partitions per topic (1)"},
    {"topics", U32, FIELD(topic_count), "topics that metadata creates and asks for (1)"},
    {"groups", U32, FIELD(group_count), "groups that heartbeat and join spread their members over (1)"},
    {"batch-bytes", U32, FIELD(shape.batch_bytes), "bytes of a batch before compression (16384)"},
    {"record-bytes", U32, FIELD(shape.record_bytes), "value bytes of a record (1024, or what the batch holds)"},
    {"max-bytes", U32, FIELD(max_bytes), "fetch: bytes asked for (1048576)"},
    {"produce-version", U32, FIELD(produce_version), "Produce version, 9 to 12 (9)"},
    {"timeout-ms", U32, FIELD(timeout_ms), "produce timeout and group session timeout (30000)"},
    {"rate", REAL, FIELD(rate), "open loop: requests per second over all connections; latency counts from due time"},
    {"seconds", REAL, FIELD(seconds), "how long to run (10 when --bytes is not given)"},
    {"warmup", REAL, FIELD(warmup_seconds), "seconds before counting starts (0)"},
    {"interval", REAL, FIELD(interval_seconds), "print a line with a histogram every so many seconds (0: none)"},
    {"payload-file", STRING, FIELD(payload_file), "produce: values are its lines, or pieces of --record-bytes"},
    {"keys", U32, FIELD(key_count), "produce: records have so many keys, which choose their partitions (0: none)"},
    {"batches", U32, FIELD(batch_count), "produce: different batches per partition (1; 16 with keys or a file)"},
    {"call-bytes", U64, FIELD(call_bytes),
     "sent or received per call at most: a kernel may keep the CPU while it copies (0: all)"},
    {"priority", U32, FIELD(priority), "real-time priority, 1 to 99: waiting for a CPU here is not measured (0: none)"},
    {"bytes", U64, FIELD(total_bytes), "stop after that much payload; k, m, g suffixes are 1024-based"},
};
enum { ROW_COUNT = sizeof ROWS / sizeof ROWS[0], OPTION_PORT = ROW_COUNT, OPTION_ACKS, OPTION_CODEC, OPTION_HELP };

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: pbload MODE --port PORT [options]\n"
        "modes: produce fetch tail offset-commit heartbeat metadata join idle; bare, a server that does nothing; and\n"
        "       witness, which tells when the machine stood still (PBLOAD_STALLS names the file with what it told),\n"
        "       and stalls, which reads that for others\n"
        "  --port             port of the broker\n"
        "  --acks             0, 1 or all (all)\n"
        "  --codec            none, gzip, snappy, lz4 or zstd (none)\n");
    for (unsigned i = 0; i < ROW_COUNT; i++)
        fprintf(out, "  --%-16s %s\n", ROWS[i].name, ROWS[i].help);
}

__attribute__((noreturn, format(printf, 1, 2))) static void mistake(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("pbload: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("; see pbload --help\n", stderr);
    va_end(arguments);
    exit(2);
}

static double number(const char *name, const char *text, double max)
{
    char *end;
    double value = strtod(text, &end);
    double scale = *end == 'k' ? 1024.0 : *end == 'm' ? 1048576.0 : *end == 'g' ? 1073741824.0 : 1.0;
    if (end == text || (*end && (scale == 1.0 || end[1])) || value < 0 || value * scale > max)
        mistake("--%s is '%s'; it wants a number from 0 to %.0f", name, text, max);
    return value * scale;
}

static void store(struct pbl_options *options, const struct option_row *row, const char *text)
{
    void *field = (char *)options + row->position;
    switch (row->kind) {
    case STRING:
        *(const char **)field = text;
        break;
    case U32:
        *(uint32_t *)field = (uint32_t)number(row->name, text, INT_MAX);
        break;
    case REAL:
        *(double *)field = number(row->name, text, 1e9);
        break;
    case U64:
        *(uint64_t *)field = (uint64_t)number(row->name, text, 1e15);
        break;
    }
}

static void store_special(struct pbl_options *options, int which, const char *text)
{
    int codec;
    switch (which) {
    case OPTION_PORT:
        options->port = (uint16_t)number("port", text, UINT16_MAX);
        break;
    case OPTION_ACKS:
        options->acks = (int16_t)(strcmp(text, "all") == 0 ? -1 : (int)number("acks", text, 1));
        break;
    case OPTION_CODEC:
        codec = pbl_codec_by_name(text);
        if (codec < 0)
            mistake("--codec is '%s'; it wants none, gzip, snappy, lz4 or zstd", text);
        options->shape.codec = (enum pbl_codec)codec;
        break;
    case OPTION_HELP:
        usage(stdout);
        exit(0);
    default:
        usage(stderr);
        exit(2);
    }
}

static bool needs_no_port(const char *mode)
{
    return strcmp(mode, "witness") == 0 || strcmp(mode, "stalls") == 0;
}

static void finish(struct pbl_options *options)
{
    if (!options->mode)
        mistake("no mode given");
    if (options->port == 0 && !needs_no_port(options->mode))
        mistake("--port is missing");
    if (options->connection_count == 0 || options->in_flight_count == 0 || options->partition_count == 0)
        mistake("--connections, --in-flight and --partitions want at least 1");
    if (options->group_count == 0 || options->topic_count == 0)
        mistake("--groups and --topics want at least 1");
    if (options->produce_version < 9 || options->produce_version > 12)
        mistake("--produce-version is %u; it wants 9 to 12", options->produce_version);
    if (options->priority > 99)
        mistake("--priority is %u; it wants 0 to 99", options->priority);
    if (options->seconds == 0 && options->total_bytes == 0)
        options->seconds = 10;
    if (options->batch_count == 0)
        options->batch_count = options->payload_file || options->key_count ? 16 : 1;
    if (options->shape.record_bytes == 0 && !options->payload_file) {
        uint32_t room = options->shape.batch_bytes > 200 ? options->shape.batch_bytes - 80 : 100;
        options->shape.record_bytes = room < 1024 ? room : 1024;
    }
}

void pbl_options_parse(struct pbl_options *options, int argc, char **argv)
{
    *options = (struct pbl_options){.host = "127.0.0.1",
                                    .topic = "pbload",
                                    .group = "pbload",
                                    .connection_count = 1,
                                    .in_flight_count = 1,
                                    .partition_count = 1,
                                    .topic_count = 1,
                                    .group_count = 1,
                                    .max_bytes = 1 << 20,
                                    .produce_version = 9,
                                    .timeout_ms = 30000,
                                    .acks = -1,
                                    .shape = {.batch_bytes = 16384}};
    struct option longs[ROW_COUNT + 5] = {0};
    for (int i = 0; i < ROW_COUNT; i++)
        longs[i] = (struct option){ROWS[i].name, required_argument, NULL, i};
    longs[OPTION_PORT] = (struct option){"port", required_argument, NULL, OPTION_PORT};
    longs[OPTION_ACKS] = (struct option){"acks", required_argument, NULL, OPTION_ACKS};
    longs[OPTION_CODEC] = (struct option){"codec", required_argument, NULL, OPTION_CODEC};
    longs[OPTION_HELP] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    int which;
    while ((which = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (which >= 0 && which < ROW_COUNT)
            store(options, &ROWS[which], optarg);
        else
            store_special(options, which, optarg);
    }
    if (optind < argc)
        options->mode = argv[optind++];
    if (optind < argc)
        mistake("'%s' is one argument too many", argv[optind]);
    finish(options);
}
