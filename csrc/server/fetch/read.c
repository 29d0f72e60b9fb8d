/* Finding the bytes of a fetch: limits of the request and of each partition, in the order asked. Reactor thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/fetch/fetch.h"
#include "wire/generated/kafka_errors.h"

static const pb_fetch_response_epoch_end_offset no_divergence = {.epoch = -1, .end_offset = -1};

static void find_divergence(fetch_item *item)
{
    pb_epoch_end diverging;
    pthread_mutex_lock(&item->partition->lock);
    item->error = pb_partition_find_divergence(item->partition, item->last_fetched_epoch, item->offset, &diverging);
    pthread_mutex_unlock(&item->partition->lock);
    item->diverging.epoch = diverging.epoch;
    item->diverging.end_offset = diverging.end_offset;
}

/* Up to where this reader may read. */
static int64_t upper_offset(const fetch_state *fetch, const fetch_item *item)
{
    if (fetch->replica_id >= 0)
        return item->ends.written_offset;
    return fetch->read_committed ? item->ends.last_stable_offset : item->ends.high_watermark;
}

static void read_aborted(fetch_state *fetch, fetch_item *item)
{
    pb_log_guard guard = pb_partition_guard(item->partition);
    int64_t stable_offset = item->ends.last_stable_offset;
    if (item->slice.end_offset < stable_offset)
        stable_offset = item->slice.end_offset;
    int result = pb_log_aborted_transactions(item->partition->log, &guard, item->offset, stable_offset, &item->aborted,
                                             &item->aborted_count);
    fetch->must_wait = fetch->must_wait || (result == -EAGAIN && fetch->never_wait);
    if (result == 0 || fetch->must_wait)
        return;
    pb_partition_report_read(item->partition, result);
    item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
}

void pb_fetch_tell_damage(fetch_state *fetch, const fetch_item *item)
{
    pb_partition *partition = item->partition; /* clients that ask for a damaged batch ask again */
    if (atomic_exchange_explicit(&partition->damage_told, item->offset + 1, memory_order_relaxed) == item->offset + 1)
        return;
    pb_events_notice(
        &fetch->request->home->broker->events,
        "%s-%d: offset %lld cannot be fetched, because its batch is damaged; run `pybroker log check` on the "
        "stopped broker to see where",
        partition->topic, partition->index, (long long)item->offset);
}

static void read_entered(fetch_state *fetch, fetch_item *item, int64_t left_bytes)
{
    int64_t max_bytes = item->max_bytes < left_bytes ? item->max_bytes : left_bytes;
    if (fetch->probing)
        max_bytes = max_bytes < 1 ? max_bytes : 1;
    bool at_least_one = fetch->probing || fetch->bytes == 0; /* KIP-74: the first batch comes whole */
    item->error = pb_partition_find(item->partition, &item->ends, item->offset, max_bytes, upper_offset(fetch, item),
                                    at_least_one, &item->slice);
    if (item->error == -EAGAIN && fetch->never_wait) {
        fetch->must_wait = true;
        return;
    }
    if (item->error == 0 && fetch->read_committed && item->slice.segment != NULL)
        read_aborted(fetch, item);
    if (item->error == PB_KAFKA_CORRUPT_MESSAGE)
        pb_fetch_tell_damage(fetch, item);
    if (item->error < 0)
        item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
    if (item->error != 0 && item->slice.segment != NULL) {
        pb_segment_release(item->slice.segment);
        memset(&item->slice, 0, sizeof item->slice);
    }
    item->found = item->slice.segment != NULL;
}

/* The ends told for a partition that failed; as Kafka, for OFFSET_OUT_OF_RANGE too. */
static const pb_partition_ends no_ends = {.high_watermark = -1, .last_stable_offset = -1, .log_start_offset = -1};

/* 0: the item's ends are known, and pb_partition_leave follows. */
static int enter_as_follower(fetch_state *fetch, fetch_item *item)
{
    pb_replica_fetch asked = {
        .replica_id = fetch->replica_id,
        .leader_epoch = item->current_leader_epoch,
        .last_fetched_epoch = item->last_fetched_epoch,
        .broker_epoch = fetch->replica_epoch,
        .offset = item->offset,
        .log_start_offset = item->log_start_offset,
        .now_ns = fetch->began_ns,
    };
    pb_epoch_end diverging;
    int result = pb_partition_enter_replica(item->partition, &asked, !item->counted, &item->ends, &diverging);
    item->counted = true;
    item->diverging.epoch = diverging.epoch;
    item->diverging.end_offset = diverging.end_offset;
    return result;
}

/* Is this follower to get nothing of the partition now? */
static bool is_held_back(fetch_state *fetch, const fetch_item *item)
{
    pb_broker *broker = fetch->request->home->broker;
    return fetch->replica_id >= 0 && item->ends.is_throttled &&
           pb_quota_is_exceeded(&broker->leader_quota, broker->io->ops->monotonic_ns(broker->io));
}

static int enter(fetch_state *fetch, fetch_item *item)
{
    if (fetch->replica_id >= 0)
        return enter_as_follower(fetch, item);
    int result = pb_partition_enter(item->partition, item->current_leader_epoch, fetch->from_follower, &item->ends);
    if (result == 0 && item->last_fetched_epoch >= 0)
        find_divergence(item);
    if (result == 0 && fetch->near_count > 0)
        item->preferred_replica =
            pb_partition_nearest_replica(item->partition, item->offset, fetch->near, fetch->near_count);
    return result;
}

static void read_item(fetch_state *fetch, fetch_item *item, int64_t left_bytes)
{
    item->diverging = no_divergence;
    item->preferred_replica = -1;
    item->ends = no_ends;
    item->found = false;
    if (item->partition == NULL)
        return; /* its error says so */
    item->error = 0;
    int refused = enter(fetch, item);
    if (refused != 0) {
        item->error = refused;
    } else {
        if (item->error == 0 && item->diverging.epoch < 0 && item->preferred_replica < 0 && !is_held_back(fetch, item))
            read_entered(fetch, item, left_bytes);
        pb_partition_leave(item->partition);
    }
    if (item->error != 0) {
        int32_t leader_epoch = item->ends.leader_epoch;
        item->ends = no_ends;
        item->ends.leader_epoch = leader_epoch;
    }
}

void pb_fetch_read(fetch_state *fetch)
{
    fetch->bytes = 0;
    fetch->has_news = false;
    fetch->copied_count = 0;
    fetch->has_ring_records = false;
    for (int32_t i = 0; i < fetch->item_count && !fetch->must_wait; i++) {
        fetch_item *item = &fetch->items[i];
        read_item(fetch, item, fetch->limit_bytes - fetch->bytes);
        fetch->bytes += item->slice.length;
        fetch->has_news = fetch->has_news || item->error != 0 || item->diverging.epoch >= 0 ||
                          item->preferred_replica >= 0 || item->known_high_watermark < item->ends.high_watermark;
    }
}

void pb_fetch_unpin_item(fetch_item *item)
{
    if (item->slice.segment != NULL)
        pb_segment_release(item->slice.segment);
    memset(&item->slice, 0, sizeof item->slice);
    if (item->copy != NULL)
        pb_chunk_release(item->copy);
    item->copy = NULL;
    item->records = PB_EMPTY_SLICE;
    free(item->aborted);
    item->aborted = NULL;
    item->aborted_count = 0;
}

void pb_fetch_unpin(fetch_state *fetch)
{
    for (int32_t i = 0; i < fetch->item_count; i++)
        pb_fetch_unpin_item(&fetch->items[i]);
}
