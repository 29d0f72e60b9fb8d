/* A blocking Kafka client of a few lines for tests of the data plane: one socket, raw frames, the generated codecs. */
#ifndef PB_TESTS_SUPPORT_MINI_CLIENT_H
#define PB_TESTS_SUPPORT_MINI_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "wire/generated/fetch_response.h"
#include "wire/generated/produce_response.h"

typedef struct mini_client {
    int fd;
    int32_t next_correlation_id;
    int32_t produce_timeout_ms;   /* a minute */
    const char *transactional_id; /* of what is produced; NULL: none */
    uint8_t *answer;              /* the last one, behind its size */
    size_t answer_length;
    pb_arena arena; /* of the last decoded answer */
} mini_client;

/* Connects to 127.0.0.1; ends the test when it cannot. */
void mini_client_open(mini_client *client, int port);
void mini_client_close(mini_client *client);
void mini_client_send_raw(mini_client *client, const void *bytes, size_t length);
/* Read one whole answer into `answer`; false when the broker closed the connection. */
bool mini_client_receive(mini_client *client);

/* A batch of `count` records of `value_bytes` each into `out` (room for it); its size. */
size_t mini_batch(uint8_t *out, size_t capacity, int count, size_t value_bytes);

/* Whole frames for any transport; free with pb_writer_free. */
void mini_encode_produce(pb_writer *writer, int32_t correlation_id, int16_t version, int16_t acks, const char *topic,
                         int32_t partition, const uint8_t *batch, size_t length);
void mini_encode_fetch(pb_writer *writer, int32_t correlation_id, int16_t version, const char *topic, int32_t partition,
                       int64_t offset, int32_t min_bytes, int32_t max_wait_ms);
struct pb_fetch_request;
void mini_encode_fetch_request(pb_writer *writer, int32_t correlation_id, int16_t version,
                               const struct pb_fetch_request *request);
/* The body of an answer to ListOffsets for one partition, behind what `writer` has. */
void mini_write_offset(pb_writer *writer, int16_t version, pb_slice topic, int32_t partition, int16_t error,
                       int64_t offset);
/* `answer` is what follows the size. */
void mini_decode_produce(const uint8_t *answer, size_t length, int16_t version, pb_arena *arena,
                         pb_produce_response *out);
void mini_decode_fetch(const uint8_t *answer, size_t length, int16_t version, pb_arena *arena, pb_fetch_response *out);

/* A request of which the body is there. */
void mini_client_send_body(mini_client *client, int16_t api_key, int16_t version, const pb_writer *body);
void mini_client_send_produce(mini_client *client, int16_t version, int16_t acks, const char *topic, int32_t partition,
                              const uint8_t *batch, size_t length);
void mini_client_receive_produce(mini_client *client, int16_t version, pb_produce_response *out);
void mini_client_send_fetch(mini_client *client, int16_t version, const char *topic, int32_t partition, int64_t offset,
                            int32_t min_bytes, int32_t max_wait_ms);
/* As little as one batch, and no more than max_bytes beyond it. */
void mini_client_send_fetch_of(mini_client *client, int16_t version, const char *topic, int32_t partition,
                               int64_t offset, int32_t max_bytes);
/* A follower's fetch from one partition. From mini_replica: what a new follower asks for. */
typedef struct mini_replica_fetch {
    const char *topic;       /* before version 13 */
    const uint8_t *topic_id; /* from then on */
    int32_t partition;
    int32_t replica_id;
    int64_t broker_epoch;
    int32_t leader_epoch;
    int32_t last_fetched_epoch;
    int64_t offset;
    int64_t log_start_offset;
    int64_t known_high_watermark; /* version 18 */
    int32_t max_wait_ms;
    int32_t session_id;
    int32_t session_epoch;
    const char *rack;  /* of a consumer, replica id -1; NULL: not said */
    bool says_nothing; /* all is as the session has it */
} mini_replica_fetch;
mini_replica_fetch mini_replica(int32_t replica_id, const char *topic, const uint8_t *topic_id);
void mini_encode_replica_fetch(pb_writer *writer, int32_t correlation_id, int16_t version,
                               const mini_replica_fetch *fetch);
void mini_client_send_replica_fetch(mini_client *client, int16_t version, const mini_replica_fetch *fetch);
void mini_client_receive_fetch(mini_client *client, int16_t version, pb_fetch_response *out);

#endif
