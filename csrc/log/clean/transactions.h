/*
 * The transactions of a log as one walk over it learns them, and as Apache Kafka's cleaner sees them. It tells which
 * batches belong to an aborted transaction and may go, and which markers are no longer needed.
 *
 * Batches are shown in the order of the log. A marker whose transaction has shown a batch in this walk, kept or not, is
 * needed; entries of the transaction index live as long as the abort markers that are. One thread.
 */
#ifndef PB_LOG_CLEAN_TRANSACTIONS_H
#define PB_LOG_CLEAN_TRANSACTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "log/segment/transaction_index.h"
#include "record/batch.h"

/* A producer with a transaction under way at this point of the walk. */
typedef struct pb_clean_transaction {
    int64_t producer_id; /* -1: free */
    bool commits;        /* a batch was seen that is not part of an aborted transaction */
    bool aborts;         /* its transaction ends with an abort: `entry` */
    bool seen;           /* a batch of the aborted transaction was */
    pb_transaction_entry entry;
} pb_clean_transaction;

typedef struct pb_clean_transactions {
    pb_transaction_entry *aborted; /* by first offset */
    uint32_t aborted_count;
    uint32_t aborted_next;           /* the first one that has not begun yet */
    pb_clean_transaction *producers; /* open table */
    uint32_t capacity;
    uint32_t count;
} pb_clean_transactions;

/* Begin a walk; takes over `aborted` (malloc), every aborted transaction that touches what will be walked over. */
void pb_clean_transactions_init(pb_clean_transactions *transactions, pb_transaction_entry *aborted, uint32_t count);
void pb_clean_transactions_clear(pb_clean_transactions *transactions);
/* A data batch: *aborted tells whether its transaction was aborted. 0 or -ENOMEM. */
int pb_clean_transactions_data(pb_clean_transactions *transactions, const pb_batch_header *header, bool *aborted);
/* Takes a whole control batch. *done tells that no batch of its transaction was seen. *entry is filled for an abort
 * marker whose transaction was seen (entry->last_offset >= 0), and belongs into the index. 0 or -ENOMEM. */
int pb_clean_transactions_control(pb_clean_transactions *transactions, const uint8_t *batch,
                                  const pb_batch_header *header, bool *done, pb_transaction_entry *entry);

#endif
