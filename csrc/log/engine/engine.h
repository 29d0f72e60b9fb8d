/*
 * Append engines: how the bytes of a log reach the disk. One table per engine; a hardware profile chooses by name.
 *
 * The write path asks the table for the size of a write, and background work lets the engine pace what is dirty. All
 * engines keep one contract: what pb_log_write_end was told has been written survives the end of the process.
 */
#ifndef PB_LOG_ENGINE_ENGINE_H
#define PB_LOG_ENGINE_ENGINE_H

#include <stdint.h>

#include "io/io.h"

/* How far an engine has come in the active segment's file. Background thread only. */
typedef struct pb_engine_state {
    int64_t segment_base;     /* which segment it speaks of; -1: none */
    int64_t started_position; /* writeback has been started below */
} pb_engine_state;

typedef struct pb_engine {
    const char *name;
    int64_t write_max_bytes; /* no write takes more than this, but for a single larger batch */
    int64_t pace_bytes;      /* so much new data makes pacing due */
    /* Start writeback up to `written_position`. Blocking, background. */
    int (*pace)(pb_io *io, pb_engine_state *state, int64_t segment_base, int file, int64_t written_position);
} pb_engine;

/* The engine of that name; NULL when there is none. */
const pb_engine *pb_engine_find(const char *name);

#endif
