/*
 * One connection: frames in, responses out, in order. It is a client's, or one that this side has made: then answers
 * come in, and requests leave.
 *
 * Owned by its reactor; everything here runs on that reactor's thread. A frame is handed to the handler where it lies,
 * in a chunk the handler may retain. Responses queue in the order their requests were read and leave in that order; a
 * response that is not ready holds back those behind it.
 *
 * Life (a state, the event that leads to it, and its rules):
 *
 *   CONNECTING  made here      -> OPEN once connected
 *   OPEN        frames come in, responses leave
 *   ENDED       the client sends no more: the frames received are answered, then the connection is killed
 *   LEAVING     (leave) no more frames; bytes that come are thrown away. Requests under way are answered, then the
 *               client is told the end. When it has ended too, the connection is killed
 *   CLOSING     (kill) no more frames; started operations finish with an error; ready responses are dropped. When no
 *               operation is active and no response is queued, `closed` is told and the connection is freed
 */
#ifndef PB_NET_CONNECTION_H
#define PB_NET_CONNECTION_H

#include "net/reactor.h"
#include "net/transport.h"

#define PB_HOST_BYTES 46
#define PB_SEND_IOVECS 64

typedef struct pb_connection pb_connection;

/* One piece of a response: memory, or a range of a file sent without passing through user space. */
typedef struct pb_output {
    const uint8_t *data; /* NULL: from the file */
    int64_t length;
    int64_t position;
    int file;
} pb_output;

/* A queued response. Owner: the request that embeds it; `released` is called once, sent or dropped. */
typedef struct pb_response {
    pb_link link;
    pb_output *outputs;
    int output_count;
    int next_output;
    bool ready;
    bool hurried;
    bool is_behind; /* there was more than it takes: who asked has not come to the tail */
    bool yields;    /* its files are history: while clients at the tail are served, they are sent in small pieces */
    int64_t resident_ns; /* when all file ranges were last known to be in the page cache; 0: never */
    void (*hurry)(struct pb_response *response); /* the connection leaves or closes: become ready soon; may be NULL */
    void (*released)(struct pb_response *response, bool sent);
} pb_response;

enum pb_frame_verdict {
    PB_FRAME_TAKEN,  /* go on */
    PB_FRAME_HOLD,   /* not now: offer it again after pb_connection_resume */
    PB_FRAME_REFUSE, /* close the connection; the handler has said why */
};

/* From where a part of a file is sent. */
enum pb_part_place {
    PB_PART_IN_FILE,   /* the page cache has it */
    PB_PART_IN_MEMORY, /* here, until the next part of the response is asked for, or it is released */
    PB_PART_AWAITED,   /* it is being brought in: pb_connection_brought follows, on the reactor's thread */
};

/* The behaviour of connections of one kind, and the source of their memory. */
typedef struct pb_connection_handler {
    void (*opened)(pb_connection *connection); /* of one made here: it is connected, and may send. NULL for others */
    enum pb_frame_verdict (*frame)(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame, uint32_t length);
    /* Could a frame that begins so, at least in part, be taken now, or would it be held? Memory of its own is taken for
     * it then alone. NULL: always. */
    bool (*may_begin)(pb_connection *connection, const uint8_t *frame, uint32_t length);
    void (*malformed)(pb_connection *connection, const char *what); /* before the connection is closed for it */
    void (*starved)(pb_connection *connection); /* it begins to wait for buffer memory; NULL: nobody minds */
    void (*closed)(pb_connection *connection);  /* last call: forget it */
    /* Where is this part of a file, *length bytes from the output's position on, or so many as it says? `brought`: it
     * has been brought in for this. NULL: in the file. */
    enum pb_part_place (*place)(pb_response *response, const pb_output *output, bool brought, int64_t *length,
                                const uint8_t **bytes);
    uint32_t max_frame_bytes;
    uint32_t exact_frame_bytes; /* frames up to here get a chunk of their size at once; 0: as those of clients do */
    pb_pool *pool;              /* NULL: the reactor's */
} pb_connection_handler;

struct pb_connection {
    pb_socket socket;
    pb_reactor *reactor;
    const pb_transport *transport;
    const pb_connection_handler *handler;
    void *owner; /* the handler's */
    int64_t id;
    uint32_t listener;
    char host[PB_HOST_BYTES];
    pb_link link; /* reactor->connections */
    pb_link flush_link;
    pb_link starved_link;
    int64_t last_active_ns;
    pb_address address; /* of one made here */
    int error;          /* why one made here could not be connected; 0: it was */
    bool connecting;
    /* Receiving. */
    pb_pool *pool;
    pb_chunk *chunk; /* NULL while nothing is buffered and nothing is expected soon */
    uint32_t start;  /* first byte not yet handed over */
    uint32_t end;    /* first free byte */
    uint32_t last_frame_bytes;
    /* Since then it holds what is buffered, less the time it has waited for memory; 0: nothing is buffered. */
    int64_t unfinished_since_ns;
    int64_t starved_since_ns;
    bool polling;    /* waiting without a buffer */
    bool held;       /* the handler said HOLD */
    bool delivering; /* inside the frame loop */
    bool ended;      /* the client sends no more; it may still read */
    bool leaving;
    bool owes;   /* leaving, and counted among those with answers to give */
    bool parted; /* leaving, all is answered, and the client was told that no more comes */
    bool closing;
    bool reads_in_bulk;    /* the last response was history, or showed that this reader is behind */
    bool bringing;         /* into memory, what is to be sent next */
    pb_timer mute;         /* set: until then no frame is taken; `held` is too */
    int64_t brought_bytes; /* so much of what is to be sent next was brought in */
    /* Sending. */
    pb_link responses;
    int response_count; /* queued */
    struct iovec iov[PB_SEND_IOVECS];
};

/* Take over a connected socket. NULL when memory is short: the fd is closed. */
pb_connection *pb_connection_open(pb_reactor *reactor, int fd, const pb_connection_handler *handler, void *owner,
                                  int64_t id, uint32_t listener);
/* Make one to an address; `opened` or `closed` comes, not from inside this call. NULL: memory or file handles are
 * short. It is up to the caller to kill it when that takes too long. */
pb_connection *pb_connection_connect(pb_reactor *reactor, const pb_address *address,
                                     const pb_connection_handler *handler, void *owner, int64_t id);
/* Close it; safe to call more than once. `closed` comes later, never from inside this call. */
void pb_connection_kill(pb_connection *connection);
/* Take no frames until then; answers leave all the same. A later end counts. */
void pb_connection_mute(pb_connection *connection, int64_t until_ns);
/* Offer the held frame again (at the end of this turn's work at the latest). */
void pb_connection_resume(pb_connection *connection);
/* Queue a response that is not ready. */
void pb_connection_expect(pb_connection *connection, pb_response *response);
/* So many bytes of what is awaited have been brought in; or they never will be (-errno). */
void pb_connection_brought(pb_connection *connection, int64_t result);
/* Its outputs are set: send it when its turn comes. output_count 0 answers nothing (acks=0). */
void pb_connection_respond(pb_connection *connection, pb_response *response);

/* For the reactor. */
void pb_connection_flush(pb_connection *connection);
void pb_connection_feed(pb_connection *connection);  /* memory may be there again */
void pb_connection_leave(pb_connection *connection); /* the reactor takes no more requests */

#endif
