/* Transactions during a walk of the cleaner. One thread; fails on memory only. */
#include "log/clean/transactions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/derived/producer_state.h"

enum { FIRST_CAPACITY = 16 };

static int compare_first_offsets(const void *a, const void *b)
{
    int64_t x = ((const pb_transaction_entry *)a)->first_offset;
    int64_t y = ((const pb_transaction_entry *)b)->first_offset;
    return (x > y) - (x < y);
}

void pb_clean_transactions_init(pb_clean_transactions *transactions, pb_transaction_entry *aborted, uint32_t count)
{
    if (count > 0)
        qsort(aborted, count, sizeof(*aborted), compare_first_offsets);
    *transactions = (pb_clean_transactions){.aborted = aborted, .aborted_count = count};
}

void pb_clean_transactions_clear(pb_clean_transactions *transactions)
{
    free(transactions->aborted);
    free(transactions->producers);
    memset(transactions, 0, sizeof(*transactions));
}

/* The producer's place in the table, or the free one where it belongs. */
static pb_clean_transaction *place_of(const pb_clean_transactions *transactions, int64_t producer_id)
{
    uint64_t hash = (uint64_t)producer_id * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t at = (uint32_t)(hash >> 32) & (transactions->capacity - 1);
    while (transactions->producers[at].producer_id >= 0 && transactions->producers[at].producer_id != producer_id)
        at = (at + 1) & (transactions->capacity - 1);
    return &transactions->producers[at];
}

/* Twice the room for the producers that have something under way; the others are forgotten. */
static int grow(pb_clean_transactions *transactions)
{
    pb_clean_transactions larger = *transactions;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < transactions->capacity; i++)
        busy += transactions->producers[i].commits || transactions->producers[i].aborts;
    larger.capacity = FIRST_CAPACITY;
    while (larger.capacity < busy * 4)
        larger.capacity *= 2;
    larger.count = busy;
    larger.producers = malloc(larger.capacity * sizeof(*larger.producers));
    if (larger.producers == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < larger.capacity; i++)
        larger.producers[i] = (pb_clean_transaction){.producer_id = -1};
    for (uint32_t i = 0; i < transactions->capacity; i++) {
        const pb_clean_transaction *producer = &transactions->producers[i];
        if (producer->commits || producer->aborts)
            *place_of(&larger, producer->producer_id) = *producer;
    }
    free(transactions->producers);
    *transactions = larger;
    return 0;
}

static int find(pb_clean_transactions *transactions, int64_t producer_id, pb_clean_transaction **out)
{
    if (transactions->count * 2 >= transactions->capacity && grow(transactions) != 0)
        return -ENOMEM;
    pb_clean_transaction *producer = place_of(transactions, producer_id);
    if (producer->producer_id < 0) {
        *producer = (pb_clean_transaction){.producer_id = producer_id};
        transactions->count++;
    }
    *out = producer;
    return 0;
}

/* Aborted transactions that begin at or below `offset` are under way from here on. */
static int begin_aborted(pb_clean_transactions *transactions, int64_t offset)
{
    while (transactions->aborted_next < transactions->aborted_count &&
           transactions->aborted[transactions->aborted_next].first_offset <= offset) {
        const pb_transaction_entry *entry = &transactions->aborted[transactions->aborted_next];
        pb_clean_transaction *producer;
        int rc = find(transactions, entry->producer_id, &producer);
        if (rc != 0)
            return rc;
        transactions->aborted_next++;
        if (producer->aborts)
            continue;
        producer->aborts = true;
        producer->seen = false;
        producer->entry = *entry;
    }
    return 0;
}

int pb_clean_transactions_data(pb_clean_transactions *transactions, const pb_batch_header *header, bool *aborted)
{
    *aborted = false;
    int rc = begin_aborted(transactions, pb_batch_last_offset(header));
    if (rc != 0 || !pb_batch_is_transactional(header) || header->producer_id < 0)
        return rc;
    pb_clean_transaction *producer;
    rc = find(transactions, header->producer_id, &producer);
    if (rc != 0)
        return rc;
    *aborted = producer->aborts;
    if (producer->aborts)
        producer->seen = true;
    else
        producer->commits = true;
    return 0;
}

int pb_clean_transactions_control(pb_clean_transactions *transactions, const uint8_t *batch,
                                  const pb_batch_header *header, bool *done, pb_transaction_entry *entry)
{
    *entry = (pb_transaction_entry){.last_offset = -1};
    *done = header->record_count == 0;
    int rc = begin_aborted(transactions, pb_batch_last_offset(header));
    bool aborts;
    int32_t coordinator_epoch;
    if (rc != 0 || *done || header->producer_id < 0 ||
        !pb_marker_parse(batch + PB_BATCH_HEADER_BYTES, header->size_bytes - PB_BATCH_HEADER_BYTES, &aborts,
                         &coordinator_epoch))
        return rc;
    pb_clean_transaction *producer;
    rc = find(transactions, header->producer_id, &producer);
    if (rc != 0)
        return rc;
    if (!aborts) {
        *done = !producer->commits;
        producer->commits = false;
        return 0;
    }
    *done = !(producer->aborts && producer->seen);
    if (!*done)
        *entry = producer->entry;
    producer->aborts = false;
    return 0;
}
