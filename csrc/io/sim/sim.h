/*
 * The simulated machine: a disk that forgets what was not synced, a network in memory, a clock that only waiting moves.
 *
 * Everything runs on the caller's thread: pb_sim_step picks one of the broker's threads by a seeded choice and runs its
 * step, so that one seed replays one run. Faults are seeded too. A crash is a copy of the disk as it would be found
 * afterwards. The old instance is then taken down in order, and nothing it still does reaches the copy.
 *
 * Blocking calls that wait for another thread would wait for ever here: callers step until there is nothing to wait
 * for.
 */
#ifndef PB_IO_SIM_SIM_H
#define PB_IO_SIM_SIM_H

#include "io/io.h"

/* Chances are out of a million, per operation. */
typedef struct pb_sim_faults {
    uint32_t short_io;      /* a socket moves only part of what was asked */
    uint32_t write_error;   /* a file write fails: EIO after some of it, or ENOSPC */
    uint32_t sync_error;    /* a sync fails, and what it should have made durable may be lost */
    uint32_t delayed_write; /* an append finishes in a later turn */
    uint32_t cold_read;     /* what is asked for is not in memory */
} pb_sim_faults;

int pb_io_sim_open(uint64_t seed, pb_io **out);
void pb_sim_set_faults(pb_io *io, const pb_sim_faults *faults);

/* From now on the machine keeps count of what is in its page cache: what was read or written through it, until it is
 * forgotten. `cold_read` should be 0 then. */
void pb_sim_count_pages(pb_io *io);
/* Forget pages, in runs of so many bytes: each run of a file with that chance. */
void pb_sim_forget_pages(pb_io *io, int64_t run_bytes, uint32_t per_million);

/* Run one step of one thread. False when every thread sleeps; then time moves to the next deadline, if there is one. */
bool pb_sim_step(pb_io *io);
/* Step until nothing is runnable without time passing. */
void pb_sim_settle(pb_io *io);

enum pb_sim_crash {
    PB_SIM_KILL,      /* SIGKILL: what was written is there, in files and in stores */
    PB_SIM_POWER_CUT, /* what was not synced is there or not, sector by sector, name by name; stores are gone */
};
/* A new machine with the disk as found after a crash now. */
int pb_sim_crash(pb_io *io, enum pb_sim_crash crash, uint64_t seed, pb_io **out);

/* A client's end of a connection to a listening port; -ECONNREFUSED when nobody listens. */
int pb_sim_connect(pb_io *io, int port);
void pb_sim_client_send(pb_io *io, int client, const void *bytes, size_t length);
/* Bytes that have arrived (0: none yet), or -ECONNRESET when the broker closed and all has been read. */
int64_t pb_sim_client_receive(pb_io *io, int client, void *buffer, size_t capacity);
/* The broker's outgoing connection waits for an answer. The client's end of the oldest connection of its own that
 * waits, and the port it is for; -1: none does. Any of the calls here may be made with it once it is accepted. */
int pb_sim_next_outgoing(pb_io *io, int *port);
void pb_sim_answer_outgoing(pb_io *io, int client, bool accept);
int64_t pb_sim_client_unread(pb_io *io, int client); /* bytes it has sent and the broker has not received */
void pb_sim_client_end(pb_io *io, int client);       /* sends no more, but reads */
void pb_sim_client_close(pb_io *io, int client);

#endif
