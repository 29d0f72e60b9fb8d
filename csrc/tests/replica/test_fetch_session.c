/* Fetch sessions as KIP-227 and Apache Kafka have them, and their memory. */
#include <stdlib.h>
#include <string.h>

#include "replica/fetch_session.h"
#include "tests/check.h"
#include "wire/generated/kafka_errors.h"

enum { V = 12, V_BY_ID = 13, PARTITIONS_MAX = 8 };

static pb_fetch_sessions sessions;

/* A request for partitions 0..count-1 of one topic. */
typedef struct asked {
    pb_fetch_request request;
    pb_fetch_request_fetch_topic topic;
    pb_fetch_request_fetch_partition partitions[PARTITIONS_MAX];
    pb_fetch_request_forgotten_topic forgotten;
    int32_t forgotten_partitions[PARTITIONS_MAX];
} asked;

static pb_fetch_request *ask(asked *it, int32_t id, int32_t epoch, pb_slice topic, int count, int forget)
{
    memset(it, 0, sizeof *it);
    for (int i = 0; i < count; i++) {
        pb_fetch_request_fetch_partition_init(&it->partitions[i]);
        it->partitions[i].partition = i;
        it->partitions[i].fetch_offset = 100 + i;
    }
    for (int i = 0; i < forget; i++)
        it->forgotten_partitions[i] = i;
    it->topic = (pb_fetch_request_fetch_topic){.topic = topic, .partitions = it->partitions, .partitions_count = count};
    it->forgotten = (pb_fetch_request_forgotten_topic){
        .topic = topic, .partitions = it->forgotten_partitions, .partitions_count = forget};
    pb_fetch_request_init(&it->request);
    it->request.session_id = id;
    it->request.session_epoch = epoch;
    it->request.topics = &it->topic;
    it->request.topics_count = count > 0;
    it->request.forgotten_topics_data = &it->forgotten;
    it->request.forgotten_topics_data_count = forget > 0;
    return &it->request;
}

/* Begin and, when there is a session, end; its id, or 0 and the error. */
static int32_t turn(asked *it, int16_t version, int64_t now_ms, int *error, int32_t *count)
{
    pb_fetch_session *session;
    bool full;
    *error = pb_fetch_session_begin(&sessions, &it->request, version, now_ms, &session, &full);
    if (session == NULL)
        return 0;
    int32_t id = session->id;
    if (count != NULL)
        *count = session->partition_count;
    pb_fetch_session_end(&sessions, session);
    return id;
}

static void start(int32_t limit)
{
    CHECK_INT(pb_fetch_sessions_init(&sessions, limit, 12345), 0);
}

static void stop(void)
{
    pb_fetch_sessions_destroy(&sessions);
    CHECK_INT(atomic_load(&sessions.held_bytes), 0);
}

#define T pb_slice_of_text("t")

TEST(a_session_goes_on_epoch_by_epoch)
{
    asked it;
    int error;
    int32_t count = 0;
    start(10);
    int32_t id = (ask(&it, 0, 0, T, 3, 0), turn(&it, V, 0, &error, &count));
    CHECK(id > 0);
    CHECK_INT(count, 3);
    ask(&it, id, 1, T, 0, 0);
    CHECK_INT(turn(&it, V, 0, &error, &count), id);
    CHECK_INT(count, 3);
    CHECK_INT(turn(&it, V, 0, &error, NULL), 0); /* the same epoch again */
    CHECK_INT(error, PB_KAFKA_INVALID_FETCH_SESSION_EPOCH);
    ask(&it, id, 2, T, 5, 1); /* two more, and one is forgotten */
    CHECK_INT(turn(&it, V, 0, &error, &count), id);
    CHECK_INT(count, 4);
    ask(&it, id + 1, 1, T, 0, 0);
    CHECK_INT(turn(&it, V, 0, &error, NULL), 0);
    CHECK_INT(error, PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    ask(&it, id, 3, T, 0, 0);
    CHECK_INT(turn(&it, V_BY_ID, 0, &error, NULL), 0);
    CHECK_INT(error, PB_KAFKA_FETCH_SESSION_TOPIC_ID_ERROR);
    stop();
}

TEST(a_full_request_ends_the_session_it_names)
{
    asked it;
    int error;
    start(10);
    int32_t id = (ask(&it, 0, 0, T, 1, 0), turn(&it, V, 0, &error, NULL));
    ask(&it, id, 0, T, 1, 0);
    int32_t second = turn(&it, V, 0, &error, NULL);
    CHECK(second != id && second > 0);
    CHECK_INT(pb_fetch_sessions_count(&sessions), 1);
    ask(&it, second, -1, T, 1, 0);
    CHECK_INT(turn(&it, V, 0, &error, NULL), 0);
    CHECK_INT(error, 0);
    CHECK_INT(pb_fetch_sessions_count(&sessions), 0);
    stop();
}

TEST(a_session_left_empty_ends)
{
    asked it;
    int error;
    start(10);
    int32_t id = (ask(&it, 0, 0, T, 3, 0), turn(&it, V, 0, &error, NULL));
    ask(&it, id, 1, T, 0, 3);
    CHECK_INT(turn(&it, V, 0, &error, NULL), 0);
    CHECK_INT(error, 0);
    CHECK_INT(pb_fetch_sessions_count(&sessions), 0);
    stop();
}

TEST(a_new_session_takes_the_place_of_a_stale_or_smaller_one)
{
    asked it;
    int error;
    start(2);
    ask(&it, 0, 0, T, 3, 0);
    CHECK(turn(&it, V, 0, &error, NULL) > 0);
    int32_t small = (ask(&it, 0, 0, T, 2, 0), turn(&it, V, 0, &error, NULL));
    ask(&it, 0, 0, T, 5, 0);
    CHECK_INT(turn(&it, V, 120000, &error, NULL), 0); /* neither stale nor old enough to go */
    CHECK_INT(error, 0);
    ask(&it, small, 1, T, 0, 0);
    CHECK_INT(turn(&it, V, 100000, &error, NULL), small);
    ask(&it, 0, 0, T, 3, 0);
    CHECK(turn(&it, V, 120001, &error, NULL) > 0); /* the first one was last used at 0 */
    CHECK_INT(pb_fetch_sessions_count(&sessions), 2);
    ask(&it, 0, 0, T, 2, 0);
    CHECK_INT(turn(&it, V, 120002, &error, NULL), 0); /* not larger than the small one */
    ask(&it, 0, 0, T, 3, 0);
    CHECK(turn(&it, V, 120003, &error, NULL) > 0);
    ask(&it, small, 2, T, 0, 0);
    CHECK_INT(turn(&it, V, 120004, &error, NULL), 0);
    CHECK_INT(error, PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    stop();
}

TEST(names_are_bytes_whatever_is_in_them)
{
    static char name[3000];
    asked it;
    int error;
    int32_t count = 0;
    name[0] = 't';
    start(10);
    int32_t id = (ask(&it, 0, 0, (pb_slice){name, sizeof name}, 2, 0), turn(&it, V, 0, &error, &count));
    CHECK_INT(count, 2);
    ask(&it, id, 1, (pb_slice){name, sizeof name}, 2, 0);
    CHECK_INT(turn(&it, V, 0, &error, &count), id);
    CHECK_INT(count, 2);
    ask(&it, id, 2, (pb_slice){name, 2}, 2, 0); /* another name */
    CHECK_INT(turn(&it, V, 0, &error, &count), id);
    CHECK_INT(count, 4);
    stop();
}

TEST(what_sessions_remember_is_bounded)
{
    static char name[30000];
    asked it;
    int error = 0;
    int32_t id = 0, epoch = 1;
    start(1000);
    for (int i = 0; i < 20000 && error == 0; i++) {
        memcpy(name, &i, sizeof i);
        ask(&it, id, id == 0 ? 0 : epoch++, (pb_slice){name, sizeof name}, 1, 0);
        int32_t got = turn(&it, V, 0, &error, NULL);
        id = id == 0 ? got : id;
        CHECK(atomic_load(&sessions.held_bytes) <= PB_SESSION_MEMORY_BYTES);
    }
    CHECK_INT(error, PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    CHECK_INT(pb_fetch_sessions_count(&sessions), 0);
    stop();
}

TEST(only_what_changed_is_told)
{
    asked it;
    bool full;
    pb_fetch_session *session;
    start(10);
    ask(&it, 0, 0, T, 1, 0);
    CHECK_INT(pb_fetch_session_begin(&sessions, &it.request, V, 0, &session, &full), 0);
    pb_session_partition *partition = PB_CONTAINER(session->partitions.next, pb_session_partition, link);
    CHECK(pb_session_partition_changed(session, partition, false, 0, 10, 0));
    CHECK(!pb_session_partition_changed(session, partition, false, 0, 10, 0));
    CHECK(pb_session_partition_changed(session, partition, true, 0, 10, 0));
    CHECK(pb_session_partition_changed(session, partition, false, 0, 11, 0));
    CHECK(pb_session_partition_changed(session, partition, false, 0, 11, 1));
    CHECK(pb_session_partition_changed(session, partition, false, 1, -1, -1));
    CHECK(pb_session_partition_changed(session, partition, false, 0, 11, 1)); /* the error has gone */
    CHECK(!pb_session_partition_changed(session, partition, false, 0, 11, 1));
    pb_fetch_session_end(&sessions, session);
    stop();
}

CHECK_MAIN()
