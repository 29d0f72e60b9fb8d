/*
 * The transactions that a pass of the cleaner meets. The cleaner shows the batches of the log in order. For each batch
 * this module says whether it belongs to an aborted transaction, so that it may be removed, and for each marker whether
 * it is still needed. The rules are those of Apache Kafka's cleaner.
 *
 * A marker is needed if the pass has met a data batch of its transaction, whether that batch is kept or not. An entry
 * of the transaction index is kept as long as its abort marker is needed. One thread.
 */
#ifndef PB_LOG_CLEAN_TRANSACTIONS_H
#define PB_LOG_CLEAN_TRANSACTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "log/segment/transaction_index.h"
#include "record/batch.h"

/* A producer whose transaction is open at this point of the pass. */
typedef struct pb_clean_transaction {
    int64_t producer_id; /* -1: this slot is free */
    bool commits;        /* a data batch of a transaction that is not aborted was met */
    bool aborts;         /* the transaction ends with an abort, and `entry` is its index entry */
    bool seen;           /* with `aborts`: a data batch of this transaction was met */
    pb_transaction_entry entry;
} pb_clean_transaction;

typedef struct pb_clean_transactions {
    pb_transaction_entry *aborted; /* the aborted transactions, ordered by first offset */
    uint32_t aborted_count;
    uint32_t aborted_next;           /* the first of them that has not begun yet */
    pb_clean_transaction *producers; /* a hash table with open addressing */
    uint32_t capacity;
    uint32_t count;
} pb_clean_transactions;

/* Begin a pass. `aborted` (malloc) has every aborted transaction that overlaps the range of the pass; this module frees
 * it. */
void pb_clean_transactions_init(pb_clean_transactions *transactions, pb_transaction_entry *aborted, uint32_t count);
void pb_clean_transactions_clear(pb_clean_transactions *transactions);
/* Show a data batch. *aborted: its transaction was aborted. 0 or -ENOMEM. */
int pb_clean_transactions_data(pb_clean_transactions *transactions, const pb_batch_header *header, bool *aborted);
/* Show a control batch, with its records. *done: the marker is not needed, since no data batch of its transaction was
 * met. For an abort marker that is needed, entry->last_offset is not negative, and *entry must be kept in the index. 0
 * or -ENOMEM. */
int pb_clean_transactions_control(pb_clean_transactions *transactions, const uint8_t *batch,
                                  const pb_batch_header *header, bool *done, pb_transaction_entry *entry);

#endif
