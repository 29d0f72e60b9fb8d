/*
 * One pass of the log cleaner; see clean.h. On a background thread, which holds references on the segments it reads and
 * copies what it needs of the log under the lock.
 */
#include "log/clean/clean.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/clean/filter.h"
#include "log/clean/output.h"
#include "log/clean/pack.h"
#include "log/clean/reader.h"
#include "log/clean/swap.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"

enum { LEAST_BUFFER_BYTES = 64 * 1024, EXPECTED_KEYS = 16 };

/* A sealed segment as it was when the pass began. */
typedef struct clean_source {
    pb_segment *segment; /* a reference */
    int64_t end_offset;
    int64_t size_bytes;
    int64_t modified_ms;
    uint32_t offset_flushed; /* entries of the offset index that are in its file */
    uint32_t offset_entries;
    uint32_t time_entries;
} clean_source;

typedef struct cleaning {
    pb_log *log;
    const pb_log_guard *guard;
    const pb_clean_settings *settings;
    pb_clean_throttle *throttle;
    pb_clean_stats *stats;
    pb_failure *failure;
    clean_source *sources; /* all that lie, at least in part, below upper_offset */
    uint32_t source_count;
    int64_t first_dirty_offset;
    int64_t upper_offset;
    int64_t end_offset; /* behind what the map knows */
    uint32_t cut_count;
    pb_log_config config;
    pb_clean_map map;
    pb_live_offsets live;
    pb_clean_transactions transactions;
    pb_clean_reader reader;
    pb_clean_output output;
    pb_clean_filter filter;
    pb_clean_packer packer;
    pb_clean_producer *producers;
    size_t producer_count;
    int64_t throttled_bytes; /* read and written, and paid for */
} cleaning;

pb_clean_control *pb_log_clean_control(pb_log *log)
{
    return &log->clean;
}

static bool is_cancelled(const cleaning *c)
{
    return atomic_load_explicit(&c->log->clean.cancelled, memory_order_relaxed);
}

static int fail(const cleaning *c, int code, const char *what)
{
    return pb_log_fail(c->log, c->failure, code, what);
}

/* Put the file and position in front of what is wrong with a batch. */
static int fail_batch(const cleaning *c, const pb_segment *segment, int code, int64_t position)
{
    char what[PB_FAILURE_TEXT_BYTES];
    memcpy(what, c->failure->text, sizeof(what));
    return pb_fail(c->failure, code, "cannot clean %s/%020lld.log: at position %lld: %.300s", segment->directory,
                   (long long)segment->base_offset, (long long)position, what);
}

static void set_stage(cleaning *c, pb_clean_stage stage, int64_t total_bytes)
{
    atomic_store_explicit(&c->log->clean.done_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&c->log->clean.total_bytes, total_bytes, memory_order_relaxed);
    atomic_store_explicit(&c->log->clean.stage, (int)stage, memory_order_relaxed);
}

/* After a batch: wait as the throttle wants, and see whether to go on. */
static int pause_if_due(cleaning *c, int64_t done_bytes)
{
    int64_t moved_bytes = c->reader.read_bytes + c->output.written_bytes;
    if (moved_bytes == c->throttled_bytes)
        return 0;
    atomic_store_explicit(&c->log->clean.done_bytes, done_bytes, memory_order_relaxed);
    atomic_store_explicit(&c->log->clean.map_entries, (int64_t)c->map.count, memory_order_relaxed);
    pb_clean_throttle_wait(c->throttle, c->log->io, moved_bytes - c->throttled_bytes, &c->log->clean.cancelled);
    c->throttled_bytes = moved_bytes;
    return is_cancelled(c) ? fail(c, -ECANCELED, "cleaning was stopped") : 0;
}

/* The segments to clean, with a reference on each. */
static int take_sources(cleaning *c)
{
    pb_log *log = c->log;
    int rc = 0;
    pb_log_lock(c->guard);
    int64_t active_base = pb_log_active(log)->base_offset;
    if (c->upper_offset > active_base)
        c->upper_offset = active_base;
    if (c->first_dirty_offset < log->start_offset)
        c->first_dirty_offset = log->start_offset;
    c->config = log->config;
    bool failed = log->failed;
    /* The records below the bounds are not those that lay there when the bounds were looked at: some may be above the
     * high watermark. */
    bool cut = log->cut_count != c->cut_count;
    /* The planner of the pass did not know of an earlier cut yet. */
    cut = cut || (c->first_dirty_offset > log->cut_offset && c->first_dirty_offset > log->start_offset);
    c->sources = calloc(log->segment_count, sizeof(*c->sources));
    for (uint32_t i = 0; c->sources != NULL && !failed && i + 1 < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        if (segment->base_offset >= c->upper_offset)
            break;
        pb_segment_retain(segment);
        c->sources[c->source_count++] = (clean_source){
            .segment = segment,
            .end_offset = pb_log_segment_end(log, i),
            .size_bytes = segment->size_bytes,
            .modified_ms = segment->modified_ms,
            .offset_flushed = segment->offset_index.flushed_count,
            .offset_entries = pb_index_count(&segment->offset_index),
            .time_entries = pb_index_count(&segment->time_index),
        };
    }
    pb_log_unlock(c->guard);
    if (failed)
        rc = fail(c, -EIO, "a sync or truncation failed earlier; the log has to be opened again. Cannot clean");
    else if (cut)
        rc = fail(c, -EAGAIN, "the log was cut since it was looked at");
    return c->sources == NULL ? fail(c, -ENOMEM, "cannot clean the log") : rc;
}

/* A file was not there: did retention or a move of the log take the segment away? */
static int fail_open(cleaning *c, const pb_segment *segment, int code, const char *what)
{
    pb_log_lock(c->guard);
    int floor = pb_log_segment_floor(c->log, segment->base_offset);
    bool there = floor >= 0 && c->log->segments[floor] == segment;
    pb_log_unlock(c->guard);
    if (code == -ENOENT && !there)
        return fail(c, -EAGAIN, "a segment went away while the log was being cleaned");
    return fail(c, code, what);
}

/* Bytes that a pass reads twice are left in memory after the first time. */
static int begin_source(cleaning *c, const clean_source *source, int64_t position, bool drops)
{
    int file;
    int rc = pb_log_open_segment(c->log, c->guard, source->segment, &file);
    if (rc != 0)
        return fail_open(c, source->segment, rc, "cannot open a segment to clean it");
    pb_clean_reader_begin(&c->reader, file, pb_segment_open_direct(source->segment, PB_OPEN_READ), position,
                          source->size_bytes, drops);
    return 0;
}

/* ---- the map ---- */

/* Keys whose places in the map are on their way from memory. */
typedef struct expected_keys {
    pb_clean_hash hashes[EXPECTED_KEYS];
    int64_t offsets[EXPECTED_KEYS];
    uint32_t count;
    uint32_t next; /* the oldest one */
} expected_keys;

/* Put the oldest key into the map; once the map is full, none. */
static void put_oldest(cleaning *c, expected_keys *keys)
{
    uint32_t at = keys->next++ % EXPECTED_KEYS;
    keys->count--;
    if (c->stats->map_full || !pb_clean_map_put(&c->map, keys->hashes[at], keys->offsets[at]))
        c->stats->map_full = true;
    else
        c->end_offset = keys->offsets[at] + 1;
}

/* One batch of the dirty part goes into the map. */
static int map_batch(cleaning *c, const uint8_t *batch, const pb_batch_header *header)
{
    expected_keys keys = {.count = 0};
    const uint8_t *at;
    size_t length;
    int rc = pb_clean_records(&c->filter, batch, header, &at, &length, c->failure);
    if (rc != 0)
        return rc;
    const uint8_t *end = at + length;
    for (int32_t i = 0; i < header->record_count; i++) {
        pb_clean_record record;
        at = pb_clean_record_parse(at, end, &record);
        if (at == NULL || record.offset_delta < 0 || record.offset_delta > header->last_offset_delta)
            return pb_fail(c->failure, PB_INVALID_RECORD, "a record's fields do not fit its batch");
        int64_t offset = header->base_offset + record.offset_delta;
        if (offset < c->first_dirty_offset || offset >= c->upper_offset)
            continue;
        if (record.key_length < 0) {
            c->stats->invalid_records++;
            continue;
        }
        if (keys.count == EXPECTED_KEYS)
            put_oldest(c, &keys);
        uint32_t place = (keys.next + keys.count++) % EXPECTED_KEYS;
        keys.hashes[place] = pb_clean_map_expect(&c->map, record.key, (size_t)record.key_length);
        keys.offsets[place] = offset;
    }
    while (keys.count > 0)
        put_oldest(c, &keys);
    return 0;
}

/* One batch in the order of the log: markers and aborted records have nothing for the map. */
static int show_batch(cleaning *c, const uint8_t *batch, const pb_batch_header *header)
{
    bool aborted = true;
    int rc;
    if (pb_batch_is_control(header)) {
        pb_transaction_entry ignored;
        bool done;
        rc = pb_clean_transactions_control(&c->transactions, batch, header, &done, &ignored);
    } else {
        rc = pb_clean_transactions_data(&c->transactions, header, &aborted);
    }
    if (rc != 0)
        return fail(c, rc, "cannot keep track of transactions");
    c->stats->map_read_records += header->record_count;
    if (!aborted)
        rc = map_batch(c, batch, header);
    int64_t behind = pb_batch_last_offset(header) + 1;
    if (rc == 0 && !c->stats->map_full && behind > c->end_offset)
        c->end_offset = behind < c->upper_offset ? behind : c->upper_offset;
    return rc;
}

/* Where to begin to read a source for the map. A wrong index could skip records, which would then be taken for
 * overtaken and dropped. So it is only believed as far as the batch there bears it out. */
static int find_dirty(cleaning *c, const clean_source *source, int64_t *position)
{
    pb_segment *segment = source->segment;
    *position = 0;
    if (segment->base_offset >= c->first_dirty_offset)
        return 0;
    int file = -1;
    int rc = pb_offset_index_find_flushed(segment, source->offset_flushed, c->first_dirty_offset, position);
    if (rc == 0)
        rc = pb_log_open_segment(c->log, c->guard, segment, &file);
    if (rc != 0)
        return fail_open(c, segment, rc, "cannot find the dirty part of a segment to clean it");
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init(&scan, segment->io, file, source->size_bytes, buffer, sizeof(buffer));
    rc = pb_scan_trust(&scan, segment->base_offset, c->first_dirty_offset, position);
    return rc == 0 ? 0 : fail(c, rc, "cannot read the dirty part of a segment to clean it");
}

static int map_source(cleaning *c, const clean_source *source, int64_t *done_bytes)
{
    int64_t position;
    pb_segment *segment = source->segment;
    int rc = find_dirty(c, source, &position);
    if (rc != 0)
        return rc;
    rc = begin_source(c, source, position, false);
    *done_bytes -= position;
    while (rc == 0 && !c->stats->map_full) {
        const uint8_t *batch;
        pb_batch_header header;
        position = c->reader.position;
        rc = pb_clean_reader_next(&c->reader, &batch, &header, c->failure);
        if (rc != 0 || batch == NULL || header.base_offset >= c->upper_offset)
            return rc == 0 ? 0 : fail_batch(c, segment, rc, position);
        rc = show_batch(c, batch, &header);
        if (rc != 0)
            return fail_batch(c, segment, rc, position);
        rc = pause_if_due(c, *done_bytes + c->reader.position);
    }
    return rc;
}

/* Everything from first_dirty_offset on that the map can take. */
static int make_map(cleaning *c)
{
    int64_t dirty_bytes = 0;
    uint32_t first = 0;
    while (first < c->source_count && c->sources[first].end_offset <= c->first_dirty_offset)
        first++;
    for (uint32_t i = first; i < c->source_count; i++)
        dirty_bytes += c->sources[i].size_bytes;
    set_stage(c, PB_CLEAN_STAGE_MAPPING, dirty_bytes);
    int rc = pb_clean_map_init(&c->map, c->log->io, c->settings->map_bytes, c->settings->load_factor_percent,
                               c->upper_offset - c->first_dirty_offset);
    if (rc != 0)
        return fail(c, rc, "cannot make the map of keys to clean the log");
    pb_transaction_entry *aborted = NULL;
    int aborted_count = 0;
    rc = pb_log_aborted_entries(c->log, c->guard, c->first_dirty_offset, c->upper_offset, &aborted, &aborted_count);
    if (rc != 0)
        return fail(c, rc, "cannot read the transaction indexes to clean the log");
    pb_clean_transactions_init(&c->transactions, aborted, (uint32_t)aborted_count);
    c->end_offset = c->first_dirty_offset;
    int64_t done_bytes = 0;
    for (uint32_t i = first; rc == 0 && !c->stats->map_full && i < c->source_count; i++) {
        rc = map_source(c, &c->sources[i], &done_bytes);
        done_bytes += c->sources[i].size_bytes;
        /* Over a gap at its end. */
        int64_t behind = c->sources[i].end_offset < c->upper_offset ? c->sources[i].end_offset : c->upper_offset;
        if (rc == 0 && !c->stats->map_full && c->end_offset < behind)
            c->end_offset = behind;
    }
    pb_clean_transactions_clear(&c->transactions);
    c->stats->map_read_bytes = c->reader.read_bytes;
    c->stats->map_entries = (int64_t)c->map.count;
    return rc;
}

/* ---- segments ---- */

/* How many of the sources from `first` on go into one cleaned segment: no larger, and with no larger indexes, than the
 * settings allow, as if nothing were dropped. */
static uint32_t group_size(const cleaning *c, uint32_t first)
{
    int64_t size_bytes = c->sources[first].size_bytes;
    int64_t offset_entries = c->sources[first].offset_entries;
    int64_t time_entries = c->sources[first].time_entries;
    uint32_t count = 1;
    while (first + count < c->source_count && c->sources[first + count].segment->base_offset < c->end_offset) {
        const clean_source *next = &c->sources[first + count];
        size_bytes += next->size_bytes;
        offset_entries += next->offset_entries;
        time_entries += next->time_entries;
        if (size_bytes > c->config.segment_bytes ||
            offset_entries * PB_OFFSET_INDEX_ENTRY_BYTES > c->config.segment_index_bytes ||
            time_entries * PB_TIME_INDEX_ENTRY_BYTES > c->config.segment_index_bytes ||
            (next->size_bytes > 0 && next->end_offset - 1 - c->sources[first].segment->base_offset > INT32_MAX))
            break;
        count++;
    }
    return count;
}

static int compare_producers(const void *a, const void *b)
{
    int64_t x = ((const pb_clean_producer *)a)->producer_id;
    int64_t y = ((const pb_clean_producer *)b)->producer_id;
    return (x > y) - (x < y);
}

/* The last batches of the producers that are known now. */
static int take_producers(cleaning *c)
{
    free(c->producers);
    pb_log_lock(c->guard);
    c->producer_count = 0;
    c->producers = malloc(((size_t)c->log->producers.count + 1) * sizeof(*c->producers));
    uint32_t bucket = 0;
    const pb_producer *producer = NULL;
    while (c->producers != NULL && (producer = pb_producers_next(&c->log->producers, &bucket, producer)) != NULL) {
        int64_t last = producer->batch_count > 0 ? producer->batches[producer->batch_newest].last_offset : -1;
        c->producers[c->producer_count++] = (pb_clean_producer){producer->producer_id, last, producer->epoch};
    }
    pb_log_unlock(c->guard);
    if (c->producers == NULL)
        return fail(c, -ENOMEM, "cannot clean the log");
    qsort(c->producers, c->producer_count, sizeof(*c->producers), compare_producers);
    c->filter.producers = c->producers;
    c->filter.producer_count = c->producer_count;
    return 0;
}

/* Read one source and write what stays. */
static int clean_source_into(cleaning *c, const clean_source *source, bool *changed, int64_t *done_bytes)
{
    int rc = begin_source(c, source, 0, true);
    while (rc == 0) {
        const uint8_t *batch;
        pb_batch_header header;
        pb_clean_outcome outcome = {.aborted = {.last_offset = -1}};
        int64_t position = c->reader.position;
        rc = pb_clean_reader_next(&c->reader, &batch, &header, c->failure);
        if (rc == 0 && batch != NULL)
            rc = pb_clean_filter_batch(&c->filter, batch, &header, &outcome, c->failure);
        if (rc != 0 || batch == NULL) {
            *done_bytes += source->size_bytes;
            return rc == 0 ? 0 : fail_batch(c, source->segment, rc, position);
        }
        *changed = *changed || outcome.changed;
        rc = pb_clean_packer_add(&c->packer, &c->output, &outcome);
        if (rc != 0)
            return fail(c, rc, "cannot write a cleaned segment");
        rc = pause_if_due(c, *done_bytes + c->reader.position);
    }
    return rc;
}

/* The cleaned segment is whole: sync it and put it in place. */
static int finish_group(cleaning *c, uint32_t first, uint32_t count, pb_segment **segments)
{
    pb_segment *cleaned;
    int rc = pb_clean_output_finish(&c->output, &cleaned);
    if (rc != 0)
        return fail(c, rc, "cannot finish a cleaned segment");
    cleaned->modified_ms = c->sources[first + count - 1].modified_ms;
    int64_t cleaned_bytes = cleaned->size_bytes;
    int64_t source_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        segments[i] = c->sources[first + i].segment;
        source_bytes += c->sources[first + i].size_bytes;
    }
    rc = pb_clean_swap(c->log, c->guard, cleaned, segments, count, c->cut_count, &c->log->clean.cancelled, c->failure);
    if (rc == 0) {
        c->stats->removed_bytes += source_bytes - cleaned_bytes;
        c->stats->source_segments += count;
        c->stats->cleaned_segments++;
    }
    return rc;
}

static int clean_group(cleaning *c, uint32_t first, uint32_t count, int64_t *done_bytes)
{
    int rc = take_producers(c);
    if (rc != 0)
        return rc;
    rc = pb_clean_output_begin(&c->output, c->log->io, c->log->directory, c->sources[first].segment->base_offset,
                               c->config.index_interval_bytes);
    if (rc != 0)
        return fail(c, rc, "cannot make a cleaned segment");
    bool changed = count > 1;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = clean_source_into(c, &c->sources[first + i], &changed, done_bytes);
    if (rc == 0 && changed && (rc = pb_clean_packer_drain(&c->packer, &c->output)) != 0)
        rc = fail(c, rc, "cannot write a cleaned segment");
    pb_clean_packer_abandon(&c->packer);
    if (rc == 0 && changed) {
        pb_segment **segments = calloc(count, sizeof(pb_segment *));
        rc = segments == NULL ? fail(c, -ENOMEM, "cannot clean the log") : finish_group(c, first, count, segments);
        free(segments);
    }
    /* A segment of which everything stays, stays. */
    int abandoned = pb_clean_output_abandon(&c->output);
    return rc == 0 && abandoned != 0 ? fail(c, abandoned, "cannot remove a cleaned segment") : rc;
}

/* Rewrite everything below the end of the map. */
static int rewrite_log(cleaning *c)
{
    int64_t total_bytes = 0;
    for (uint32_t i = 0; i < c->source_count && c->sources[i].segment->base_offset < c->end_offset; i++)
        total_bytes += c->sources[i].size_bytes;
    set_stage(c, PB_CLEAN_STAGE_REWRITING, total_bytes);
    int rc = pb_live_offsets_init(&c->live, &c->map, c->first_dirty_offset, c->end_offset);
    if (rc != 0)
        return fail(c, rc, "cannot clean the log");
    pb_transaction_entry *aborted = NULL;
    int aborted_count = 0;
    rc = pb_log_aborted_entries(c->log, c->guard, c->sources[0].segment->base_offset,
                                c->sources[c->source_count - 1].end_offset, &aborted, &aborted_count);
    if (rc != 0)
        return fail(c, rc, "cannot read the transaction indexes to clean the log");
    pb_clean_transactions_init(&c->transactions, aborted, (uint32_t)aborted_count);
    c->filter.end_offset = c->end_offset;
    int64_t done_bytes = 0;
    for (uint32_t i = 0; rc == 0 && i < c->source_count && c->sources[i].segment->base_offset < c->end_offset;) {
        uint32_t count = group_size(c, i);
        rc = clean_group(c, i, count, &done_bytes);
        i += count;
    }
    return rc;
}

/* ---- the pass ---- */

static int prepare(cleaning *c)
{
    size_t buffer_bytes = c->settings->io_buffer_bytes < LEAST_BUFFER_BYTES ? (size_t)LEAST_BUFFER_BYTES
                                                                            : (size_t)c->settings->io_buffer_bytes;
    size_t block_bytes =
        c->settings->read_block_bytes < (int64_t)buffer_bytes ? buffer_bytes : (size_t)c->settings->read_block_bytes;
    int rc = pb_clean_reader_init(&c->reader, c->log->io, block_bytes);
    if (rc == 0)
        rc = pb_clean_output_init(&c->output, buffer_bytes);
    if (rc == 0)
        rc = pb_codec_create(&c->filter.codec);
    if (rc == 0)
        rc = pb_clean_packer_init(&c->packer, c->log->io);
    if (rc == 0)
        rc = pb_clean_unlink_leftovers(c->log);
    if (rc != 0)
        return fail(c, rc, "cannot begin to clean the log");
    c->filter.map = &c->map;
    c->filter.live = &c->live;
    c->filter.transactions = &c->transactions;
    c->filter.first_dirty_offset = c->first_dirty_offset;
    c->filter.upper_offset = c->upper_offset;
    c->filter.now_ms = c->settings->now_ms;
    c->filter.delete_retention_ms = c->settings->delete_retention_ms;
    c->filter.max_record_bytes = c->config.max_record_bytes;
    c->packer.how = (pb_clean_codec){c->settings->compression, c->settings->level};
    return 0;
}

static void cleaning_free(cleaning *c)
{
    for (uint32_t i = 0; i < c->source_count; i++)
        pb_segment_release(c->sources[i].segment);
    free(c->sources);
    free(c->producers);
    pb_clean_map_clear(&c->map);
    pb_live_offsets_clear(&c->live);
    pb_clean_transactions_clear(&c->transactions);
    pb_clean_reader_clear(&c->reader);
    pb_clean_output_clear(&c->output);
    pb_clean_filter_clear(&c->filter);
    pb_clean_packer_clear(&c->packer);
    pb_codec_destroy(c->filter.codec);
}

/* An older record goes because there is a newer one: that must not be taken back by a power cut. */
static int make_durable(cleaning *c)
{
    pb_log_lock(c->guard);
    bool durable = c->log->durable_end >= c->end_offset;
    pb_log_unlock(c->guard);
    if (durable)
        return 0;
    /* For a log in service, only its owner may sync, and it did so before the pass: so only a cut can have taken that
     * back. */
    if (!c->settings->syncs)
        return fail(c, -EAGAIN, "the log that was to be cleaned is not durable");
    int rc = pb_log_sync(c->log, c->guard, c->failure);
    return rc == -EBUSY ? -EAGAIN : rc;
}

/* The result of a pass. When the log was cut meanwhile, what it cleaned may be gone, and what it failed by, too.
 * Earlier cuts lie below its end. */
static int conclude(cleaning *c, int result)
{
    pb_log_lock(c->guard);
    bool cut = c->log->cut_count != c->cut_count;
    if (!cut && result == 0 && c->end_offset > c->first_dirty_offset)
        c->log->cut_offset = INT64_MAX;
    pb_log_unlock(c->guard);
    /* Errors that a cut causes in files that are being read. */
    bool spoiled = result >= 0 || result == -ENODATA || result == -ENOENT || result == -EBADMSG;
    if (cut && spoiled)
        return fail(c, -EAGAIN, "the log was cut while it was being cleaned");
    if (result == 0)
        c->stats->end_offset = c->end_offset;
    return result;
}

static int run(cleaning *c)
{
    int rc = take_sources(c);
    if (rc != 0 || c->source_count == 0 || c->first_dirty_offset >= c->upper_offset)
        return rc;
    rc = prepare(c);
    if (rc == 0)
        rc = make_map(c);
    if (rc == 0)
        rc = make_durable(c);
    if (rc == 0)
        rc = rewrite_log(c);
    c->stats->read_bytes = c->reader.read_bytes - c->stats->map_read_bytes;
    c->stats->written_bytes = c->output.written_bytes;
    c->stats->read_records = c->filter.read_records;
    c->stats->kept_records = c->filter.kept_records;
    c->stats->invalid_records += c->filter.invalid_records;
    return conclude(c, rc);
}

int pb_log_clean(pb_log *log, const pb_log_guard *guard, const pb_clean_settings *settings, pb_clean_throttle *throttle,
                 pb_clean_stats *stats, pb_failure *failure)
{
    pb_failure unwanted;
    *stats = (pb_clean_stats){.end_offset = settings->first_dirty_offset};
    cleaning c = {
        .log = log,
        .guard = guard,
        .settings = settings,
        .throttle = throttle,
        .stats = stats,
        .failure = failure != NULL ? failure : &unwanted,
        .first_dirty_offset = settings->first_dirty_offset,
        .upper_offset = settings->upper_offset,
        .cut_count = settings->cut_count,
    };
    if (settings->load_factor_percent < 1 || settings->load_factor_percent > 100 || settings->map_bytes < 0)
        return fail(&c, -EINVAL, "the settings make no sense: cannot clean");
    if (atomic_exchange(&log->clean.running, true))
        return fail(&c, -EBUSY, "the log is being cleaned");
    atomic_store(&log->clean.cancelled, false);
    int rc = run(&c);
    set_stage(&c, PB_CLEAN_STAGE_IDLE, 0);
    cleaning_free(&c);
    atomic_store(&log->clean.running, false);
    return rc;
}

/* The timestamp of the segment's first batch; -1 without one. */
static int first_timestamp_of(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int64_t size_bytes,
                              int64_t *timestamp_ms)
{
    *timestamp_ms = -1;
    int file;
    int rc = pb_log_open_segment(log, guard, segment, &file);
    if (rc != 0)
        return rc == -ENOENT && atomic_load(&segment->names) == PB_NAMES_GONE ? 0 : rc;
    uint8_t buffer[PB_BATCH_HEADER_BYTES];
    pb_scan scan;
    pb_batch_header header;
    pb_scan_init(&scan, log->io, file, size_bytes, buffer, sizeof(buffer));
    rc = pb_scan_header(&scan, 0, &header);
    if (rc == 0 && header.size_bytes > 0)
        *timestamp_ms = header.max_timestamp;
    rc = pb_log_judge_read(log, guard, segment, size_bytes, rc);
    return rc < 0 && rc != -ENOENT ? rc : 0;
}

int pb_log_first_timestamp(pb_log *log, const pb_log_guard *guard, int64_t from_offset, int64_t upper_offset,
                           int64_t *timestamp_ms, pb_failure *failure)
{
    *timestamp_ms = -1;
    for (int64_t from = from_offset;;) {
        pb_log_lock(guard);
        int floor = pb_log_segment_floor(log, from);
        uint32_t index = floor < 0 ? 0 : (uint32_t)floor;
        pb_segment *segment = log->segments[index];
        bool wanted = index + 1 < log->segment_count && segment->base_offset < upper_offset;
        int64_t size_bytes = segment->size_bytes;
        from = pb_log_segment_end(log, index);
        if (wanted)
            pb_segment_retain(segment);
        pb_log_unlock(guard);
        if (!wanted)
            return 0;
        int64_t found_ms;
        int rc = first_timestamp_of(log, guard, segment, size_bytes, &found_ms);
        pb_segment_release(segment);
        if (rc != 0)
            return pb_log_fail(log, failure, rc, "cannot read the first batch of a segment");
        if (found_ms > 0 && (*timestamp_ms < 0 || found_ms < *timestamp_ms))
            *timestamp_ms = found_ms;
    }
}
