/* Makes a fetcher's requests to its leader. Its home reactor only. */
#include "server/follow/fetcher.h"

#include <string.h>

#include "wire/generated/fetch_request.h"
#include "wire/generated/list_offsets_request.h"
#include "wire/generated/request_header.h"

enum {
    BUSY_WAIT_MS = 10, /* while partitions are left out that will be ready soon */
    LATEST_TIMESTAMP = -1,
    EARLIEST_TIMESTAMP = -2,
};

/* Size and header. */
static void begin(pb_fetcher *fetcher, int16_t api_key, int16_t version)
{
    const pb_api_info *api = pb_api_find(api_key);
    const char *client_id = fetcher->settings.client_id;
    pb_request_header header = {
        .request_api_key = api_key,
        .request_api_version = version,
        .correlation_id = ++fetcher->correlation_id,
        .client_id = client_id[0] != '\0' ? pb_slice_of_text(client_id) : PB_NULL_SLICE,
    };
    pb_writer_reset(&fetcher->writer);
    pb_arena_trim(&fetcher->arena, PB_FETCHER_ARENA_KEPT_BYTES);
    pb_write_int32(&fetcher->writer, 0); /* the size, patched when it is known */
    pb_request_header_write(&fetcher->writer, pb_request_header_version(api, version), &header);
}

/* The topics of the followers on a list, each with its place among them and how many of them are its own. How many. */
static int32_t list_topics(const pb_link *followers, pb_link *topics)
{
    int32_t count = 0;
    pb_list_init(topics);
    for (pb_link *link = followers->next; link != followers; link = link->next) {
        pb_followed_topic *topic = PB_CONTAINER(link, pb_followed, link)->topic;
        if (topic->listed++ > 0)
            continue;
        topic->place = count++;
        pb_list_push_back(topics, &topic->link);
    }
    return count;
}

static pb_followed_topic *next_topic(pb_link *topics, int32_t *listed)
{
    pb_link *link = pb_list_pop_front(topics);
    pb_followed_topic *topic = link != NULL ? PB_CONTAINER(link, pb_followed_topic, link) : NULL;
    if (topic != NULL) {
        *listed = topic->listed;
        topic->listed = 0;
    }
    return topic;
}

/* Memory for what there is to fetch. */
static bool allocate_changed(pb_fetcher *fetcher, pb_fetch_request *request)
{
    pb_link topics;
    int32_t listed;
    int32_t count = list_topics(&fetcher->changed, &topics);
    request->topics = pb_arena_alloc_array(&fetcher->arena, (size_t)count, sizeof *request->topics);
    bool fits = request->topics != NULL;
    for (pb_followed_topic *topic; (topic = next_topic(&topics, &listed)) != NULL;) {
        if (!fits)
            continue;
        pb_fetch_request_fetch_topic *named = &request->topics[topic->place];
        pb_fetch_request_fetch_topic_init(named);
        memcpy(named->topic_id.bytes, topic->id, PB_UUID_BYTES);
        named->partitions = pb_arena_alloc_array(&fetcher->arena, (size_t)listed, sizeof *named->partitions);
        fits = named->partitions != NULL;
    }
    request->topics_count = fits ? count : 0;
    return fits;
}

/* Memory for what the leader shall forget. */
static bool allocate_absent(pb_fetcher *fetcher, pb_fetch_request *request)
{
    pb_link topics;
    int32_t listed;
    int32_t count = list_topics(&fetcher->absent, &topics);
    request->forgotten_topics_data =
        pb_arena_alloc_array(&fetcher->arena, (size_t)count, sizeof *request->forgotten_topics_data);
    bool fits = request->forgotten_topics_data != NULL;
    for (pb_followed_topic *topic; (topic = next_topic(&topics, &listed)) != NULL;) {
        if (!fits)
            continue;
        pb_fetch_request_forgotten_topic *named = &request->forgotten_topics_data[topic->place];
        pb_fetch_request_forgotten_topic_init(named);
        memcpy(named->topic_id.bytes, topic->id, PB_UUID_BYTES);
        named->partitions = pb_arena_alloc_array(&fetcher->arena, (size_t)listed, sizeof *named->partitions);
        fits = named->partitions != NULL;
    }
    request->forgotten_topics_data_count = fits ? count : 0;
    return fits;
}

static void name(pb_fetcher *fetcher, pb_fetch_request *request, pb_followed *follower)
{
    const pb_fetch_position *now = &follower->now;
    pb_fetch_request_fetch_topic *topic = &request->topics[follower->topic->place];
    pb_fetch_request_fetch_partition *named = &topic->partitions[topic->partitions_count++];
    pb_fetch_request_fetch_partition_init(named);
    named->partition = follower->index;
    named->current_leader_epoch = now->leader_epoch;
    named->fetch_offset = now->offset;
    named->last_fetched_epoch = now->last_epoch;
    named->log_start_offset = now->log_start_offset;
    named->partition_max_bytes = fetcher->settings.partition_max_bytes;
    if (fetcher->settings.fetch_version >= PB_FETCH_WATERMARK_VERSION)
        named->high_watermark = now->high_watermark;
    follower->sent = *now;
    follower->sent_ticket = follower->ticket;
    follower->in_session = true;
}

/* Take them off the list: from here on the session has not got them. */
static void name_absent(pb_fetcher *fetcher, pb_fetch_request *request)
{
    pb_link *link;
    PB_ASSERT(request->forgotten_topics_data_count == 0 || fetcher->session_epoch > 0);
    while ((link = pb_list_pop_front(&fetcher->absent)) != NULL) {
        pb_followed *follower = PB_CONTAINER(link, pb_followed, link);
        pb_fetch_request_forgotten_topic *topic = &request->forgotten_topics_data[follower->topic->place];
        topic->partitions[topic->partitions_count++] = follower->index;
        follower->in_session = false;
        pb_followed_collect(follower);
    }
}

static void name_changed(pb_fetcher *fetcher, pb_fetch_request *request)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&fetcher->changed)) != NULL)
        name(fetcher, request, PB_CONTAINER(link, pb_followed, link));
}

bool pb_fetcher_send_fetch(pb_fetcher *fetcher)
{
    const pb_fetcher_settings *settings = &fetcher->settings;
    if (fetcher->ready_count == 0)
        return false;
    begin(fetcher, PB_API_FETCH, settings->fetch_version);
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    request.replica_state.replica_id = settings->replica_id;
    request.replica_state.replica_epoch = fetcher->replica_epoch;
    bool hurries = fetcher->busy_count > 0 && settings->max_wait_ms > BUSY_WAIT_MS;
    request.max_wait_ms = hurries ? BUSY_WAIT_MS : settings->max_wait_ms;
    request.min_bytes = settings->min_bytes;
    request.max_bytes = settings->max_bytes;
    request.session_id = fetcher->session_id;
    request.session_epoch = fetcher->session_epoch;
    /* Topics keep their place in one list at a time. */
    if (!allocate_absent(fetcher, &request)) {
        pb_fetcher_fail(fetcher, "no memory for a request");
        return false;
    }
    name_absent(fetcher, &request);
    if (!allocate_changed(fetcher, &request)) {
        pb_fetcher_fail(fetcher, "no memory for a request");
        return false;
    }
    name_changed(fetcher, &request);
    pb_fetch_request_write(&fetcher->writer, settings->fetch_version, &request);
    pb_fetcher_send(fetcher, PB_EXPECTS_FETCH, request.max_wait_ms);
    return true;
}

/* All that ask the same are asked for at once. */
static bool list_offsets(pb_fetcher *fetcher, pb_list_offsets_request *request, bool start)
{
    int32_t count = 0;
    for (const pb_link *link = fetcher->asking.next; link != &fetcher->asking; link = link->next)
        count += PB_CONTAINER(link, const pb_followed, asking_link)->asks_start == start;
    /* One topic for each: few ask at a time. */
    request->topics = pb_arena_alloc_array(&fetcher->arena, (size_t)count, sizeof *request->topics);
    pb_list_offsets_request_list_offsets_partition *partitions =
        pb_arena_alloc_array(&fetcher->arena, (size_t)count, sizeof *partitions);
    if (request->topics == NULL || partitions == NULL)
        return false;
    for (const pb_link *link = fetcher->asking.next; link != &fetcher->asking; link = link->next) {
        const pb_followed *follower = PB_CONTAINER(link, const pb_followed, asking_link);
        if (follower->asks_start != start)
            continue;
        pb_list_offsets_request_list_offsets_topic *topic = &request->topics[request->topics_count];
        pb_list_offsets_request_list_offsets_partition *named = &partitions[request->topics_count++];
        pb_list_offsets_request_list_offsets_topic_init(topic);
        pb_list_offsets_request_list_offsets_partition_init(named);
        topic->name = pb_slice_of_text(follower->topic->name);
        topic->partitions = named;
        topic->partitions_count = 1;
        named->partition_index = follower->index;
        named->current_leader_epoch = follower->leader_epoch;
        named->timestamp = start ? EARLIEST_TIMESTAMP : LATEST_TIMESTAMP;
    }
    return true;
}

void pb_fetcher_send_offsets(pb_fetcher *fetcher)
{
    PB_ASSERT(!pb_list_empty(&fetcher->asking));
    begin(fetcher, PB_API_LIST_OFFSETS, PB_LIST_OFFSETS_VERSION);
    pb_list_offsets_request request;
    pb_list_offsets_request_init(&request);
    request.replica_id = fetcher->settings.replica_id;
    fetcher->asks_start = PB_CONTAINER(fetcher->asking.next, const pb_followed, asking_link)->asks_start;
    if (!list_offsets(fetcher, &request, fetcher->asks_start)) {
        pb_fetcher_fail(fetcher, "no memory for a request");
        return;
    }
    pb_list_offsets_request_write(&fetcher->writer, PB_LIST_OFFSETS_VERSION, &request);
    pb_fetcher_send(fetcher, PB_EXPECTS_OFFSETS, 0);
}
