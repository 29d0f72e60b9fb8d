/* The options of the command line. Read once by main; constant afterwards. */
#ifndef PBL_OPTIONS_H
#define PBL_OPTIONS_H

#include "wire/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct pbl_options {
    const char *mode;
    const char *host;
    uint16_t port;
    const char *topic;        /* of produce, fetch and offset-commit; the name prefix of metadata's topics */
    const char *group;        /* group id prefix */
    const char *topic_config; /* "key=value,key=value" of created topics, or NULL */
    uint32_t connection_count;
    uint32_t in_flight_count;
    uint32_t partition_count;
    uint32_t topic_count; /* metadata */
    uint32_t group_count; /* heartbeat, join: members are spread over them */
    uint32_t max_bytes;   /* fetch */
    uint32_t produce_version;
    uint32_t timeout_ms; /* of produce requests, and of group sessions */
    int16_t acks;
    double rate;              /* requests per second over all connections; 0 is closed loop */
    double seconds;           /* 0 is no bound */
    double warmup_seconds;    /* answers in this time are not counted */
    double interval_seconds;  /* of the lines while a run lasts; 0: none */
    uint64_t call_bytes;      /* sent or received at once; 0: all there is */
    uint32_t priority;        /* SCHED_FIFO; 0 is the normal policy */
    uint64_t total_bytes;     /* payload to send or read; 0 is no bound */
    const char *payload_file; /* values come from it; NULL: they are made up */
    uint32_t key_count;       /* 0: records have no keys */
    uint32_t batch_count;     /* different batches per partition */
    struct pbl_batch_shape shape;
};

/* Parse the arguments; on a mistake, print what and how to fix it and exit with status 2. */
void pbl_options_parse(struct pbl_options *options, int argc, char **argv);

#endif
