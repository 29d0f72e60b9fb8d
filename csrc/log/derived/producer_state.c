/*
 * The producer state map. Guarded by the partition's lock; only memory can fail.
 */
#include "log/derived/producer_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/log.h"

enum { FIRST_BUCKETS = 8, EPOCH_PER_TRANSACTION_VERSION = 2, NO_EPOCH = -1 };

int32_t pb_sequence_add(int32_t sequence, int32_t increment)
{
    if (sequence > INT32_MAX - increment)
        return increment - (INT32_MAX - sequence) - 1;
    return sequence + increment;
}

static int32_t sequence_subtract(int32_t sequence, int32_t decrement)
{
    return sequence < decrement ? INT32_MAX - (decrement - sequence) + 1 : sequence - decrement;
}

int32_t pb_producer_last_sequence(const pb_producer *producer)
{
    return producer->batch_count == 0 ? -1 : producer->batches[producer->batch_newest].last_sequence;
}

static uint32_t bucket_of(const pb_producers *producers, int64_t producer_id)
{
    /* Ids are given out in blocks: the multiplication spreads neighbours. */
    uint64_t hash = (uint64_t)producer_id * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> 32) & (producers->bucket_count - 1);
}

static pb_producer *producers_find(const pb_producers *producers, int64_t producer_id)
{
    if (producers->bucket_count == 0)
        return NULL;
    pb_producer *producer = producers->buckets[bucket_of(producers, producer_id)];
    while (producer != NULL && producer->producer_id != producer_id)
        producer = producer->next;
    return producer;
}

const pb_producer *pb_producers_find(const pb_producers *producers, int64_t producer_id)
{
    return producers_find(producers, producer_id);
}

static int producers_grow(pb_producers *producers)
{
    if (producers->count < producers->bucket_count)
        return 0;
    pb_producers larger = *producers;
    larger.bucket_count = producers->bucket_count == 0 ? FIRST_BUCKETS : producers->bucket_count * 2;
    larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
    if (larger.buckets == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < producers->bucket_count; i++) {
        while (producers->buckets[i] != NULL) {
            pb_producer *producer = producers->buckets[i];
            producers->buckets[i] = producer->next;
            pb_producer **bucket = &larger.buckets[bucket_of(&larger, producer->producer_id)];
            producer->next = *bucket;
            *bucket = producer;
        }
    }
    free(producers->buckets);
    *producers = larger;
    return 0;
}

static pb_producer *producers_insert(pb_producers *producers, int64_t producer_id)
{
    if (producers_grow(producers) != 0)
        return NULL;
    pb_producer *producer = calloc(1, sizeof(*producer));
    if (producer == NULL)
        return NULL;
    producer->producer_id = producer_id;
    producer->epoch = NO_EPOCH;
    producer->coordinator_epoch = -1;
    producer->transaction_start_offset = -1;
    producer->last_timestamp_ms = -1;
    pb_producer **bucket = &producers->buckets[bucket_of(producers, producer_id)];
    producer->next = *bucket;
    *bucket = producer;
    producers->count++;
    return producer;
}

static const pb_producer_batch *find_duplicate(const pb_producer *producer, const pb_producer_append *append)
{
    int32_t last_sequence = pb_sequence_add(append->base_sequence, append->record_count - 1);
    for (uint32_t i = 0; i < producer->batch_count; i++) {
        const pb_producer_batch *batch =
            &producer->batches[(producer->batch_newest + PB_PRODUCER_BATCHES - i) % PB_PRODUCER_BATCHES];
        if (batch->last_sequence == last_sequence &&
            sequence_subtract(batch->last_sequence, batch->offset_delta) == append->base_sequence)
            return batch;
    }
    return NULL;
}

int pb_producers_check(const pb_producers *producers, const pb_producer_append *append, pb_producer_batch *duplicate)
{
    const pb_producer *producer = producers_find(producers, append->producer_id);
    if (producer == NULL)
        return append->epoch < NO_EPOCH ? PB_INVALID_PRODUCER_EPOCH : 0;
    if (append->is_marker) {
        /* A marker that comes again finds its transaction ended. No epoch follows the last one. */
        bool must_be_newer = append->transaction_version >= EPOCH_PER_TRANSACTION_VERSION &&
                             producer->transaction_start_offset >= 0 && append->epoch < INT16_MAX;
        if (append->epoch < producer->epoch || (must_be_newer && append->epoch == producer->epoch))
            return PB_INVALID_PRODUCER_EPOCH;
        return append->coordinator_epoch < producer->coordinator_epoch ? PB_TRANSACTION_COORDINATOR_FENCED : 0;
    }
    if (append->epoch == producer->epoch) {
        const pb_producer_batch *found = find_duplicate(producer, append);
        if (found != NULL) {
            *duplicate = *found;
            return PB_LOG_DUPLICATE;
        }
    }
    if (append->epoch < producer->epoch)
        return PB_INVALID_PRODUCER_EPOCH;
    int32_t last = append->epoch == producer->epoch ? pb_producer_last_sequence(producer) : -1;
    /* A batch without an epoch begins no sequence. */
    if (producer->epoch != NO_EPOCH && append->base_sequence != (last == INT32_MAX ? 0 : last + 1))
        return PB_OUT_OF_ORDER_SEQUENCE_NUMBER;
    if (producer->transaction_start_offset >= 0 && !append->is_transactional)
        return PB_INVALID_TXN_STATE;
    return 0;
}

static void producer_set_epoch(pb_producer *producer, int16_t epoch)
{
    if (producer->epoch == epoch)
        return;
    producer->epoch = epoch;
    producer->batch_count = 0;
}

static void producer_push_batch(pb_producer *producer, const pb_producer_batch *batch)
{
    if (producer->batch_count > 0)
        producer->batch_newest = (uint8_t)((producer->batch_newest + 1) % PB_PRODUCER_BATCHES);
    else
        producer->batch_newest = 0;
    producer->batches[producer->batch_newest] = *batch;
    if (producer->batch_count < PB_PRODUCER_BATCHES)
        producer->batch_count++;
}

static int transactions_reserve(pb_producers *producers)
{
    if (producers->transaction_count < producers->transaction_capacity)
        return 0;
    uint32_t capacity = producers->transaction_capacity == 0 ? 4 : producers->transaction_capacity * 2;
    pb_transaction *grown = realloc(producers->transactions, capacity * sizeof(*grown));
    if (grown == NULL)
        return -ENOMEM;
    producers->transactions = grown;
    producers->transaction_capacity = capacity;
    return 0;
}

/* There must be room. Order by first offset: snapshots list producers in no order. */
static void transactions_insert(pb_producers *producers, int64_t producer_id, int64_t first_offset)
{
    PB_ASSERT(producers->transaction_count < producers->transaction_capacity);
    uint32_t at = producers->transaction_count;
    while (at > 0 && producers->transactions[at - 1].first_offset > first_offset) {
        producers->transactions[at] = producers->transactions[at - 1];
        at--;
    }
    producers->transactions[at] = (pb_transaction){producer_id, first_offset, -1};
    producers->transaction_count++;
}

static void apply_marker(pb_producers *producers, pb_producer *producer, const pb_producer_append *append,
                         pb_completed_transaction *completed)
{
    producer_set_epoch(producer, append->epoch);
    producer->coordinator_epoch = append->coordinator_epoch;
    producer->last_timestamp_ms = append->max_timestamp_ms;
    if (producer->transaction_start_offset < 0)
        return;
    int64_t last_stable_offset = append->last_offset + 1;
    bool other_found = false;
    for (uint32_t i = 0; i < producers->transaction_count; i++) {
        pb_transaction *transaction = &producers->transactions[i];
        if (transaction->last_offset >= 0)
            continue;
        if (transaction->producer_id == append->producer_id) {
            transaction->last_offset = append->last_offset;
        } else if (!other_found) {
            other_found = true;
            last_stable_offset = transaction->first_offset;
        }
    }
    *completed = (pb_completed_transaction){true, producer->transaction_start_offset, last_stable_offset};
    producer->transaction_start_offset = -1;
}

int pb_producers_apply(pb_producers *producers, const pb_producer_append *append, pb_completed_transaction *completed)
{
    pb_completed_transaction ignored;
    if (completed == NULL)
        completed = &ignored;
    *completed = (pb_completed_transaction){false, -1, -1};
    if (transactions_reserve(producers) != 0)
        return -ENOMEM;
    pb_producer *producer = producers_find(producers, append->producer_id);
    if (producer == NULL)
        producer = producers_insert(producers, append->producer_id);
    if (producer == NULL)
        return -ENOMEM;
    if (append->is_marker) {
        apply_marker(producers, producer, append, completed);
        return 0;
    }
    producer_set_epoch(producer, append->epoch);
    pb_producer_batch batch = {
        .last_offset = append->last_offset,
        .timestamp_ms = append->max_timestamp_ms,
        .last_sequence = pb_sequence_add(append->base_sequence, append->record_count - 1),
        .offset_delta = append->record_count - 1,
    };
    producer_push_batch(producer, &batch);
    producer->last_timestamp_ms = append->max_timestamp_ms;
    if (append->is_transactional && producer->transaction_start_offset < 0) {
        producer->transaction_start_offset = append->base_offset;
        transactions_insert(producers, append->producer_id, append->base_offset);
    }
    return 0;
}

int pb_producers_restore(pb_producers *producers, const pb_producer *from)
{
    PB_ASSERT(producers_find(producers, from->producer_id) == NULL);
    if (transactions_reserve(producers) != 0)
        return -ENOMEM;
    pb_producer *producer = producers_insert(producers, from->producer_id);
    if (producer == NULL)
        return -ENOMEM;
    pb_producer *next = producer->next;
    *producer = *from;
    producer->next = next;
    if (producer->transaction_start_offset >= 0)
        transactions_insert(producers, producer->producer_id, producer->transaction_start_offset);
    return 0;
}

void pb_producers_expire(pb_producers *producers, int64_t now_ms, int64_t expiration_ms)
{
    for (uint32_t i = 0; i < producers->bucket_count; i++) {
        pb_producer **at = &producers->buckets[i];
        while (*at != NULL) {
            pb_producer *producer = *at;
            if (producer->transaction_start_offset >= 0 || now_ms - producer->last_timestamp_ms < expiration_ms) {
                at = &producer->next;
                continue;
            }
            *at = producer->next;
            free(producer);
            producers->count--;
        }
    }
}

int64_t pb_producers_largest_id(const pb_producers *producers, int64_t limit)
{
    int64_t largest = -1;
    uint32_t bucket = 0;
    const pb_producer *producer = NULL;
    while ((producer = pb_producers_next(producers, &bucket, producer)) != NULL) {
        if (producer->producer_id > largest && producer->producer_id < limit)
            largest = producer->producer_id;
    }
    return largest;
}

const pb_producer *pb_producers_next(const pb_producers *producers, uint32_t *bucket, const pb_producer *last)
{
    if (last != NULL && last->next != NULL)
        return last->next;
    uint32_t at = last == NULL ? *bucket : *bucket + 1;
    while (at < producers->bucket_count && producers->buckets[at] == NULL)
        at++;
    *bucket = at;
    return at < producers->bucket_count ? producers->buckets[at] : NULL;
}

int64_t pb_producers_first_unstable(const pb_producers *producers, int64_t high_watermark)
{
    for (uint32_t i = 0; i < producers->transaction_count; i++) {
        const pb_transaction *transaction = &producers->transactions[i];
        if (transaction->last_offset < 0 || transaction->last_offset >= high_watermark)
            return transaction->first_offset;
    }
    return INT64_MAX;
}

void pb_producers_forget_ended(pb_producers *producers, int64_t high_watermark)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < producers->transaction_count; i++) {
        const pb_transaction transaction = producers->transactions[i];
        if (transaction.last_offset < 0 || transaction.last_offset >= high_watermark)
            producers->transactions[kept++] = transaction;
    }
    producers->transaction_count = kept;
}

void pb_producers_clear(pb_producers *producers)
{
    for (uint32_t i = 0; i < producers->bucket_count; i++) {
        while (producers->buckets[i] != NULL) {
            pb_producer *producer = producers->buckets[i];
            producers->buckets[i] = producer->next;
            free(producer);
        }
    }
    free(producers->buckets);
    free(producers->transactions);
    memset(producers, 0, sizeof(*producers));
}
