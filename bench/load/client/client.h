/* One blocking connection for what comes before the clock starts: create topics, wait for leaders and coordinators.
 *
 * A broken connection or a malformed answer ends the program with a message: nothing can be measured then.
 */
#ifndef PBL_CLIENT_H
#define PBL_CLIENT_H

#include "options.h"
#include "wire/wire.h"

/* Kafka's api keys that this program sends. */
enum pbl_api {
    PBL_API_PRODUCE = 0,
    PBL_API_FETCH = 1,
    PBL_API_LIST_OFFSETS = 2,
    PBL_API_METADATA = 3,
    PBL_API_OFFSET_COMMIT = 8,
    PBL_API_FIND_COORDINATOR = 10,
    PBL_API_JOIN_GROUP = 11,
    PBL_API_HEARTBEAT = 12,
    PBL_API_SYNC_GROUP = 14,
    PBL_API_API_VERSIONS = 18,
    PBL_API_CREATE_TOPICS = 19,
};

enum { PBL_FRAME_HEAD_BYTES = 12, PBL_FRAME_LIMIT_BYTES = 1 << 30 };

/* The length prefix, api key, version and correlation id of a request whose rest is `body_bytes` long. */
void pbl_frame_head(uint8_t head[PBL_FRAME_HEAD_BYTES], enum pbl_api api, int16_t version, int32_t correlation_id,
                    size_t body_bytes);

/* Start a request's body with the rest of its header: client id and, for flexible versions, no tags. */
void pbl_put_client_id(struct pbl_buffer *body, bool flexible);

/* A connected TCP socket with TCP_NODELAY; ends the program when the broker cannot be reached. */
int pbl_connect(const struct pbl_options *options);

struct pbl_client {
    int fd;
    int32_t correlation_id;
    struct pbl_buffer answer;
};

void pbl_client_open(struct pbl_client *client, const struct pbl_options *options);
void pbl_client_close(struct pbl_client *client);

/* Send one request and give a reader past the answer's correlation id; valid until the next call. */
struct pbl_reader pbl_client_call(struct pbl_client *client, enum pbl_api api, int16_t version,
                                  const struct pbl_buffer *body);

__attribute__((noreturn, format(printf, 1, 2))) void pbl_fail(const char *format, ...);

#endif
