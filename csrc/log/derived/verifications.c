/*
 * A hash map by producer id. Guarded by the partition's lock; only memory can fail.
 */
#include "log/derived/verifications.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { FIRST_BUCKETS = 8 };

/* The pointer that leads to it, or the end of its bucket; there are buckets. */
static pb_verification **place_of(const pb_verifications *verifications, int64_t producer_id)
{
    /* Ids are given out in blocks: the multiplication spreads neighbours. */
    uint64_t hash = (uint64_t)producer_id * UINT64_C(0x9E3779B97F4A7C15);
    pb_verification **at = &verifications->buckets[(uint32_t)(hash >> 32) & (verifications->bucket_count - 1)];
    while (*at != NULL && (*at)->producer_id != producer_id)
        at = &(*at)->next;
    return at;
}

static bool grow(pb_verifications *verifications)
{
    if (verifications->count < verifications->bucket_count)
        return true;
    pb_verifications larger = *verifications;
    larger.bucket_count = verifications->bucket_count == 0 ? FIRST_BUCKETS : verifications->bucket_count * 2;
    larger.buckets = calloc(larger.bucket_count, sizeof *larger.buckets);
    if (larger.buckets == NULL)
        return false;
    for (uint32_t i = 0; i < verifications->bucket_count; i++)
        while (verifications->buckets[i] != NULL) {
            pb_verification *each = verifications->buckets[i];
            verifications->buckets[i] = each->next;
            pb_verification **end = place_of(&larger, each->producer_id);
            each->next = NULL;
            *end = each;
        }
    free(verifications->buckets);
    *verifications = larger;
    return true;
}

const pb_verification *pb_verifications_begin(pb_verifications *verifications, const pb_verified_batch *batch,
                                              int64_t now_ms)
{
    PB_ASSERT(batch->producer_id >= 0);
    if (!grow(verifications))
        return NULL;
    pb_verification **at = place_of(verifications, batch->producer_id);
    if (*at == NULL) {
        pb_verification *made = calloc(1, sizeof *made);
        if (made == NULL)
            return NULL;
        *made = (pb_verification){
            .producer_id = batch->producer_id,
            .guard = ++verifications->last_guard,
            .begun_ms = now_ms,
            .lowest_sequence = batch->base_sequence,
            .producer_epoch = batch->producer_epoch,
            .adds = batch->adds,
        };
        *at = made;
        verifications->count++;
    }
    pb_verification *it = *at;
    if (batch->producer_epoch > it->producer_epoch ||
        (batch->producer_epoch == it->producer_epoch && batch->base_sequence < it->lowest_sequence)) {
        it->producer_epoch = batch->producer_epoch;
        it->lowest_sequence = batch->base_sequence;
    }
    PB_ASSERT(it->guard > 0);
    return it;
}

const pb_verification *pb_verifications_find(const pb_verifications *verifications, int64_t producer_id)
{
    return verifications->count > 0 ? *place_of(verifications, producer_id) : NULL;
}

static void drop(pb_verifications *verifications, pb_verification **at)
{
    pb_verification *it = *at;
    PB_ASSERT(it != NULL && verifications->count > 0);
    *at = it->next;
    free(it);
    verifications->count--;
}

void pb_verifications_end(pb_verifications *verifications, int64_t producer_id, int16_t producer_epoch, bool is_marker)
{
    if (verifications->count == 0)
        return;
    pb_verification **at = place_of(verifications, producer_id);
    /* A coordinator that adds partitions ends each transaction at an epoch of its own (KIP-890), which the producer
     * goes on with. So a marker of that epoch belongs to the transaction before the one that waits here. */
    if (*at != NULL && !((*at)->adds && is_marker && producer_epoch == (*at)->producer_epoch))
        drop(verifications, at);
}

void pb_verifications_expire(pb_verifications *verifications, int64_t now_ms, int64_t expiration_ms)
{
    for (uint32_t i = 0; i < verifications->bucket_count; i++) {
        pb_verification **at = &verifications->buckets[i];
        while (*at != NULL) {
            if (now_ms - (*at)->begun_ms >= expiration_ms)
                drop(verifications, at);
            else
                at = &(*at)->next;
        }
    }
}

void pb_verifications_clear(pb_verifications *verifications)
{
    for (uint32_t i = 0; i < verifications->bucket_count; i++)
        while (verifications->buckets[i] != NULL)
            drop(verifications, &verifications->buckets[i]);
    PB_ASSERT(verifications->count == 0);
    free(verifications->buckets);
    *verifications = (pb_verifications){.last_guard = verifications->last_guard};
}
