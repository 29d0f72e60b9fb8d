/*
 * Are two logs the same, which come of one disk on two ways? All that either would tell or keep is compared. Header
 * only.
 */
#ifndef PB_TESTS_SIM_LOG_TWINS_H
#define PB_TESTS_SIM_LOG_TWINS_H

#include <stdlib.h>
#include <string.h>

#include "log/derived/leader_epochs.h"
#include "log/derived/producer_snapshot.h"
#include "log/segment/transaction_index.h"
#include "log/state.h"
#include "tests/check.h"

enum { SNAPSHOT_HEADER_BYTES = 10, SNAPSHOT_ENTRY_BYTES = 46 }; /* of producer snapshots */

/* Order in the table of producers is of no meaning. */
static int compare_producers(const void *left, const void *right)
{
    return memcmp(left, right, SNAPSHOT_ENTRY_BYTES);
}

/* A snapshot with its entries in order, without the header. */
static uint8_t *producers_of(pb_log *log, size_t *length)
{
    uint8_t *bytes = pb_producer_snapshot_format(&log->producers, length);
    CHECK(bytes != NULL);
    *length -= SNAPSHOT_HEADER_BYTES;
    memmove(bytes, bytes + SNAPSHOT_HEADER_BYTES, *length);
    qsort(bytes, *length / SNAPSHOT_ENTRY_BYTES, SNAPSHOT_ENTRY_BYTES, compare_producers);
    return bytes;
}

static void check_same_producers(pb_log *left, pb_log *right)
{
    size_t lengths[2];
    uint8_t *bytes[2] = {producers_of(left, &lengths[0]), producers_of(right, &lengths[1])};
    CHECK_INT(lengths[0], lengths[1]);
    CHECK_INT(memcmp(bytes[0], bytes[1], lengths[0]), 0);
    free(bytes[0]);
    free(bytes[1]);
    char *epochs[2] = {pb_leader_epochs_format(&left->epochs, &lengths[0]),
                       pb_leader_epochs_format(&right->epochs, &lengths[1])};
    CHECK_STR(epochs[0], epochs[1]);
    free(epochs[0]);
    free(epochs[1]);
}

static void check_same_segments(const pb_log *left, const pb_log *right)
{
    CHECK_INT(left->segment_count, right->segment_count);
    for (uint32_t i = 0; i < left->segment_count; i++) {
        const pb_segment *segments[2] = {left->segments[i], right->segments[i]};
        CHECK_INT(segments[0]->base_offset, segments[1]->base_offset);
        CHECK_INT(segments[0]->size_bytes, segments[1]->size_bytes);
        CHECK_INT(segments[0]->largest_timestamp_ms, segments[1]->largest_timestamp_ms);
        CHECK_INT(segments[0]->largest_timestamp_offset, segments[1]->largest_timestamp_offset);
        CHECK_INT(pb_index_count(&segments[0]->transaction_index), pb_index_count(&segments[1]->transaction_index));
    }
}

/* What readers look up: aborted transactions, and offsets by time. */
static void check_same_answers(pb_log *left, const pb_log_guard *left_guard, pb_log *right,
                               const pb_log_guard *right_guard)
{
    int64_t start = pb_log_start_offset(left), end = pb_log_written_end(left);
    pb_transaction_entry *entries[2];
    int counts[2];
    CHECK_INT(pb_log_aborted_entries(left, left_guard, start, end, &entries[0], &counts[0]), 0);
    CHECK_INT(pb_log_aborted_entries(right, right_guard, start, end, &entries[1], &counts[1]), 0);
    CHECK_INT(counts[0], counts[1]);
    for (int i = 0; i < counts[0]; i++)
        CHECK_INT(memcmp(&entries[0][i], &entries[1][i], sizeof(pb_transaction_entry)), 0);
    free(entries[0]);
    free(entries[1]);
    CHECK_INT(pb_log_last_stable_offset(left, end), pb_log_last_stable_offset(right, end));
    for (int64_t timestamp = 1000 + start; timestamp < 1000 + end; timestamp += 1 + (end - start) / 20) {
        pb_log_position places[2] = {{.offset = -1}, {.offset = -1}};
        CHECK_INT(pb_log_offset_for_timestamp(left, left_guard, timestamp, end, &places[0]), 0);
        CHECK_INT(pb_log_offset_for_timestamp(right, right_guard, timestamp, end, &places[1]), 0);
        CHECK_INT(places[0].offset, places[1].offset);
        CHECK_INT(places[0].timestamp_ms, places[1].timestamp_ms);
    }
}

static void check_twins(pb_log *left, const pb_log_guard *left_guard, pb_log *right, const pb_log_guard *right_guard)
{
    CHECK_INT(pb_log_start_offset(left), pb_log_start_offset(right));
    CHECK_INT(pb_log_written_end(left), pb_log_written_end(right));
    CHECK_INT(left->tail.first_timestamp_ms, right->tail.first_timestamp_ms);
    check_same_segments(left, right);
    check_same_producers(left, right);
    check_same_answers(left, left_guard, right, right_guard);
}

#endif
