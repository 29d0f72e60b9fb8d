/*
 * One request from the frame to the last byte of its answer.
 *
 * Owned by its connection's reactor and recycled there. While Python or another reactor works on it, only `task` and
 * the fields named there may be touched by them; they hand it back by posting `task`.
 */
#ifndef PB_SERVER_REQUEST_H
#define PB_SERVER_REQUEST_H

#include "base/arena.h"
#include "server/broker.h"
#include "wire/generated/request_header.h"

enum pb_stage_index { PB_AT_RECEIVED, PB_AT_STARTED, PB_AT_LOCAL_DONE, PB_AT_READY, PB_AT_SENDING, PB_AT_COUNT };

struct pb_request {
    pb_link link;        /* the reactor's free list */
    pb_event_node event; /* towards Python */
    pb_task task;        /* back to the reactor */
    pb_response response;
    pb_connection *connection;
    pb_server_reactor *home;
    pb_chunk *chunk; /* retained: header and body lie in it; NULL: they are in the arena */
    pb_request_header header;
    const pb_api_info *api;
    const uint8_t *body;
    uint32_t body_length;
    bool served;                /* the version is one we serve (ApiVersions is answered even if not) */
    int64_t at_ns[PB_AT_COUNT]; /* Kafka's stages of a request */
    pb_arena arena;
    pb_writer writer; /* the answer's bytes in memory */
    uint8_t *reply;   /* Python's answer: malloc'd body */
    size_t reply_length;
    size_t reply_capacity; /* of one that comes in parts */
    int32_t mute_ms;       /* Python's: so long its client has to wait after the answer */
    bool close_instead;    /* Python refused it */
    bool is_exclusive;     /* until it has been answered, or goes on, no other of its connection begins */
    void *state;           /* the API's own, in the arena */
    void (*cleanup)(pb_request *request); /* the API's: releases pins before recycling; may be NULL */
};

pb_request *pb_request_take(pb_server_reactor *home);
/* Parse the header of a frame. 0 or -EBADMSG. */
int pb_request_parse(pb_request *request, const uint8_t *frame, uint32_t length);
/* Put it into the connection's order of answers; retains the chunk (NULL: nothing of the request lies in it). */
void pb_request_enter(pb_request *request, pb_connection *connection, pb_chunk *chunk);
/* Does the request hold no more beside its chunk than that? */
static inline bool pb_request_is_light(const pb_request *request)
{
    return request->chunk == NULL || request->arena.held_bytes <= request->chunk->capacity;
}
/* Nothing of the request that lies in its chunk is needed any more but the client's name: let go of it, so that it
 * receives again. A request that waits for others must not keep the memory that these need to be heard. But a request
 * that is not light keeps its chunk, which counts for all of it. true: the chunk is gone. */
bool pb_request_leave_chunk(pb_request *request);
/* The whole answer is in `writer`: let go of all else, the API's state too. */
void pb_request_let_go(pb_request *request);
/* Start the answer: size, response header. The body is written next. */
void pb_request_begin_answer(pb_request *request);
/* The filling of a gap: a range of a file, or memory that lives as long as the request. */
typedef struct pb_gap_filling {
    const uint8_t *data; /* NULL: from the file */
    int file;
    int64_t position;
    int64_t length; /* 0: it fills none */
} pb_gap_filling;
/* The answer is whole in `writer` (gaps: `fillings` in the same order): set the outputs and let it go. */
void pb_request_finish_answer(pb_request *request, const pb_gap_filling *fillings, int count);
/* Nothing is answered (acks=0); the next request may go on. */
void pb_request_finish_silent(pb_request *request);
/* The connection is to be closed because of this request. */
void pb_request_abandon(pb_request *request);
void pb_request_recycle_all(pb_server_reactor *home);

/* The APIs served in C. */
void pb_produce_handle(pb_request *request);
void pb_fetch_handle(pb_request *request);
/* Hand a request to Python. */
void pb_slow_path_handle(pb_request *request);

#endif
