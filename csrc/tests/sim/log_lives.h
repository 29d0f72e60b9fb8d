/*
 * One log on the simulated disk through several lives, each ended in the middle of any disk operation: of an append, a
 * roll, a snapshot, a sync, a truncation, a deletion, a cleaning, a close, or of the recovery from the crash before.
 * Several idempotent producers append. After SIGKILL all that was written is there, after a power cut all that was
 * synced, and in both cases the rest is a prefix: nothing doubled, missing in between, or changed; and a producer that
 * repeats its last batch is recognised; of some logs two more producers are transactional, and what they aborted is
 * known. A log that becomes hot and cold again keeps the same promises: its ring outlives a kill, is replayed before
 * the log is opened, and is gone after a power cut. Every other log is a compacted one, which is allowed gaps, but none
 * that a power cut makes.
 *
 * Readers in mode `acks` see what lies below the durable end. They are modelled at their most eager: at every disk
 * operation they are taken to have read all of it, and after the crash it has to be there.
 *
 * A log that has marks set often is also recovered without its mark, from the same disk, and has to be the same.
 *
 * A run is one seed, and replays exactly: the log is single-threaded here, and disk, crash and operations draw from it.
 * Header only: the executables that include it may replace a part of the log by one with a planted bug.
 */
#ifndef PB_TESTS_SIM_LOG_LIVES_H
#define PB_TESTS_SIM_LOG_LIVES_H

#include <stdlib.h>

#include "io/sim/sim.h"
#include "log/clean/clean.h"
#include "log/derived/producer_state.h"
#include "log/engine/hot.h"
#include "log/engine/ring_replay.h"
#include "log/recover/mark.h"
#include "log/segment/transaction_index.h"
#include "tests/log/log_fixture.h"
#include "tests/sim/log_twins.h"

enum { MAX_LIVES = 8, OPERATIONS = 60, PRODUCERS = 3, BATCHES = MAX_LIVES * OPERATIONS * 8 };
enum { TRANSACTIONAL = 2 }; /* producers, behind the others */

/* What was appended, in order. */
typedef struct sent {
    int64_t base_offset;
    int64_t last_offset;
    uint32_t crc;
    int producer; /* 1.. */
    int32_t sequence;
    int marker; /* 1: abort, 2: commit */
} sent;

/* What a crash now must leave: copied at the moment of the crash. */
typedef struct promise {
    enum pb_sim_crash kind;
    int batch_count;
    int64_t written_end;
    int64_t synced_end;
    int64_t checkpoint_start;
    int64_t checkpoint_recovery;
    int64_t checkpoint_gap;
    int64_t start_offset; /* the log begins at or below */
} promise;

typedef struct life {
    fixture f;
    uint64_t random;
    promise now;
    bool marks_often;
    bool transactions;
    int32_t leader_epoch;
    bool truncating; /* the model has cut the log, which itself is about to */
} life;

/* How a run goes. */
typedef struct life_plan {
    int lives;
    bool rings;        /* the log may become hot */
    bool gaps_unknown; /* nothing tells recovery which gaps cleaning can have made */
    bool marks_often;
    int64_t crash_point; /* the disk operation of the first life that the crash comes before; 0: a random one */
} life_plan;

static sent batches[BATCHES];

/* The disk operation that the crash comes before. One life at a time. */
static struct {
    life *of;
    int64_t countdown;
    uint64_t seed;
    pb_io *image; /* NULL: not yet */
    pb_io *twin;  /* the same disk once more */
    promise promised;
    const pb_io_ops *real;
    pb_io_ops hooked;
} crash;

static uint64_t draw(life *it, uint64_t bound)
{
    it->random ^= it->random << 13;
    it->random ^= it->random >> 7;
    it->random ^= it->random << 17;
    return it->random % bound;
}

static void count_operation(pb_io *io)
{
    life *it = crash.of;
    if (crash.image != NULL)
        return;
    if (it->f.log != NULL && !it->truncating && pb_log_durable_end(it->f.log) > it->now.synced_end)
        it->now.synced_end = pb_log_durable_end(it->f.log);
    if (--crash.countdown > 0)
        return;
    crash.promised = it->now;
    CHECK_INT(pb_sim_crash(io, crash.promised.kind, crash.seed, &crash.image), 0);
    if (it->marks_often)
        CHECK_INT(pb_sim_crash(io, crash.promised.kind, crash.seed, &crash.twin), 0);
}

static int64_t hooked_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    count_operation(io);
    return crash.real->file_write(io, file, iov, count, position);
}

static int64_t hooked_write_durable(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    count_operation(io);
    return crash.real->file_write_durable(io, file, iov, count, position);
}

static int hooked_sync(pb_io *io, int file)
{
    count_operation(io);
    return crash.real->file_sync(io, file);
}

static int hooked_truncate(pb_io *io, int file, int64_t size)
{
    count_operation(io);
    return crash.real->file_truncate(io, file, size);
}

static int hooked_open(pb_io *io, const char *path, int flags)
{
    if ((flags & PB_OPEN_WRITE) != 0)
        count_operation(io);
    return crash.real->file_open(io, path, flags);
}

static int hooked_rename(pb_io *io, const char *from, const char *to)
{
    count_operation(io);
    return crash.real->rename(io, from, to);
}

static int hooked_unlink(pb_io *io, const char *path)
{
    count_operation(io);
    return crash.real->unlink(io, path);
}

static int hooked_directory_sync(pb_io *io, const char *path)
{
    count_operation(io);
    return crash.real->directory_sync(io, path);
}

/* A planted bug: the file system is not synced. */
static bool lives_skip_filesystem_sync;

static int hooked_filesystem_sync(pb_io *io, int filesystem)
{
    count_operation(io);
    return lives_skip_filesystem_sync ? 0 : crash.real->filesystem_sync(io, filesystem);
}

static void hook(life *it, uint64_t seed, int64_t crash_point)
{
    crash.of = it;
    crash.image = crash.twin = NULL;
    crash.seed = seed;
    int64_t point = 1 + (int64_t)draw(it, draw(it, 4) == 0 ? 20 : 500);
    crash.countdown = crash_point > 0 ? crash_point : point;
    crash.real = it->f.io->ops;
    crash.hooked = *crash.real;
    crash.hooked.file_write = hooked_write;
    crash.hooked.file_write_durable = hooked_write_durable;
    crash.hooked.file_sync = hooked_sync;
    crash.hooked.file_truncate = hooked_truncate;
    crash.hooked.file_open = hooked_open;
    crash.hooked.rename = hooked_rename;
    crash.hooked.unlink = hooked_unlink;
    crash.hooked.directory_sync = hooked_directory_sync;
    crash.hooked.filesystem_sync = hooked_filesystem_sync;
    it->f.io->ops = &crash.hooked;
}

/* ---- what a broker does --------------------------------------------------------------------------------------- */

/* The last batch of a producer; or, of all but markers, the last one. NULL: none. */
static const sent *last_of(const life *it, int producer, bool with_markers)
{
    for (int i = it->now.batch_count - 1; i >= 0; i--)
        if (batches[i].producer == producer && (with_markers || batches[i].marker == 0))
            return &batches[i];
    return NULL;
}

static int32_t next_sequence(const life *it, int producer)
{
    const sent *last = last_of(it, producer, false);
    const pb_producer *known = pb_producers_find(&it->f.log->producers, producer);
    /* A log that has nothing left of a producer but a marker takes it to be new. */
    if (known != NULL && known->batch_count == 0)
        return 0;
    return last != NULL ? last->sequence + (int32_t)(last->last_offset - last->base_offset) + 1 : 0;
}

static batch_spec spec_of(const sent *batch, int32_t leader_epoch)
{
    /* Timestamps and sizes differ from batch to batch, so that no two have the same CRC. */
    return (batch_spec){.record_count = (int)(batch->last_offset - batch->base_offset) + 1,
                        .value_length = 50 + batch->sequence % 400,
                        .timestamp = 1000 + batch->base_offset,
                        .producer_id = batch->producer,
                        .is_transactional = batch->producer > PRODUCERS,
                        .marker = batch->marker,
                        .leader_epoch = leader_epoch,
                        .keyed = true,
                        .base_sequence = batch->sequence};
}

/* What one of the producers may send next. */
static void draw_batch(life *it, sent *batch)
{
    batch->producer = 1 + (int)draw(it, PRODUCERS + (it->transactions ? TRANSACTIONAL : 0));
    batch->sequence = next_sequence(it, batch->producer);
    batch->base_offset = batch->last_offset = pb_log_appended_end(it->f.log);
    const sent *before = last_of(it, batch->producer, true);
    bool ends = batch->producer > PRODUCERS && before != NULL && before->marker == 0 && draw(it, 2) == 0;
    batch->marker = ends ? 1 + (int)draw(it, 2) : 0;
    if (!ends)
        batch->last_offset += (int64_t)draw(it, 4);
    if (it->transactions && draw(it, 16) == 0)
        pb_log_start_epoch(it->f.log, ++it->leader_epoch);
}

/* Queue some batches of different producers and write them; with `fails`, a part of the write only. */
static void append(life *it, bool fails)
{
    pb_link finished, *link;
    pb_list_init(&finished);
    for (uint64_t left = 1 + draw(it, 4); left > 0; left--) {
        sent *batch = &batches[it->now.batch_count];
        CHECK(it->now.batch_count < BATCHES);
        draw_batch(it, batch);
        pb_append *op = append_make(spec_of(batch, it->leader_epoch));
        CHECK_INT(pb_log_append(it->f.log, op), 0);
        CHECK_INT(op->base_offset, batch->base_offset);
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(op->bytes, op->length, &header), 0);
        batch->crc = header.crc;
        it->now.batch_count++;
    }
    /* What goes into a ring is memory, and is whole. */
    int64_t limit = fails && !pb_log_is_hot(it->f.log) ? (int64_t)draw(it, 600) : -1;
    while (log_write_limited(&it->f, limit, &finished)) {
    }
    while ((link = pb_list_pop_front(&finished)) != NULL) {
        pb_append *op = PB_CONTAINER(link, pb_append, link);
        if (op->error == 0)
            it->now.written_end = op->place.last_offset + 1;
        append_free(op);
    }
    if (pb_log_needs_repair(it->f.log)) {
        pb_failure failure = {0};
        CHECK_INT(pb_log_repair(it->f.log, &it->f.guard, &failure), 0);
    }
    while (it->now.batch_count > 0 && batches[it->now.batch_count - 1].base_offset >= it->now.written_end)
        it->now.batch_count--;
}

/* Recovery point and log start offset go to their checkpoint files, which are not part of this log. */
static void checkpoint(life *it)
{
    it->now.checkpoint_recovery = pb_log_recovery_point(it->f.log);
    it->now.checkpoint_start = pb_log_start_offset(it->f.log);
}

static void truncate_log(life *it)
{
    int64_t start = pb_log_start_offset(it->f.log), end = pb_log_written_end(it->f.log);
    if (end == start)
        return;
    int64_t offset = end - (int64_t)draw(it, (uint64_t)(end - start) / 4 + 1);
    pb_failure failure = {0};
    /* A batch that the cut goes through is dropped whole. */
    it->now.written_end = offset;
    for (int i = 0; i < it->now.batch_count; i++)
        if (batches[i].base_offset < offset && batches[i].last_offset >= offset)
            it->now.written_end = batches[i].base_offset;
    if (it->now.synced_end > it->now.written_end)
        it->now.synced_end = it->now.written_end;
    /* The checkpoint goes first: below the recovery point nothing may be missing. */
    if (it->now.checkpoint_recovery > it->now.written_end)
        it->now.checkpoint_recovery = it->now.written_end;
    /* And behind it comes another log, which nobody has cleaned. */
    if (it->now.checkpoint_gap > it->now.written_end)
        it->now.checkpoint_gap = it->now.written_end;
    it->truncating = true;
    CHECK_INT(pb_log_truncate(it->f.log, &it->f.guard, offset, &failure), 0);
    it->truncating = false;
    it->now.written_end = pb_log_written_end(it->f.log);
    while (it->now.batch_count > 0 && batches[it->now.batch_count - 1].base_offset >= it->now.written_end)
        it->now.batch_count--;
    checkpoint(it);
}

static void delete_some(life *it)
{
    int64_t start = pb_log_start_offset(it->f.log), end = pb_log_written_end(it->f.log);
    int deleted;
    pb_failure failure = {0};
    it->now.start_offset = start + (int64_t)draw(it, (uint64_t)(end - start) / 2 + 1);
    CHECK_INT(pb_log_set_start_offset(it->f.log, it->now.start_offset), 0);
    /* The start is in its checkpoint before files go, because not all of them need be gone after a power cut. */
    if (it->now.kind == PB_SIM_POWER_CUT)
        checkpoint(it);
    CHECK_INT(pb_log_delete_segments(it->f.log, &it->f.guard, &deleted, &failure), 0);
    CHECK_INT(pb_log_purge(it->f.log, &it->f.guard, INT64_MAX, &failure), 0);
}

/* What cleaning may leave gaps in is durable first, and known to have them. */
static void account_for_gaps(life *it)
{
    pb_failure failure = {0};
    CHECK_INT(pb_log_sync(it->f.log, &it->f.guard, &failure), 0);
    it->now.synced_end = pb_log_durable_end(it->f.log);
    int64_t gap_offset = pb_log_active(it->f.log)->base_offset;
    if (gap_offset > it->now.checkpoint_gap)
        it->now.checkpoint_gap = gap_offset;
}

/* No key comes twice, so everything stays, unless it was aborted; but small segments become one. */
static void clean(life *it)
{
    if (it->transactions)
        return;
    account_for_gaps(it);
    pb_clean_settings settings = {
        .upper_offset = pb_log_written_end(it->f.log),
        .cut_count = pb_log_cut_count(it->f.log),
        .syncs = true,
        .now_ms = 1000,
        .map_bytes = 1 << 16,
        .io_buffer_bytes = 1 << 16,
        .load_factor_percent = 90,
        .compression = -1,
    };
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    pb_failure failure = {0};
    CHECK_INT(pb_log_clean(it->f.log, &it->f.guard, &settings, &throttle, &stats, &failure), 0);
    CHECK_INT(stats.kept_records, stats.read_records);
}

/* Become hot, or cold, or bring what has gathered into the file. */
static void change_engine(life *it)
{
    pb_failure failure = {0};
    int rc = draw(it, 2) == 0                               ? pb_log_flush(it->f.log, &it->f.guard, &failure)
             : pb_log_is_hot(it->f.log) && draw(it, 3) == 0 ? pb_log_cool(it->f.log, &it->f.guard)
                                                            : pb_log_heat(it->f.log, &it->f.guard);
    CHECK(rc == 0 || rc == -EBUSY);
}

/* Alone, or as one of many, whose file system is synced. */
static void close_in_order(life *it)
{
    pb_failure failure = {0};
    if (draw(it, 2) == 0) {
        CHECK_INT(pb_log_close(it->f.log, true, &failure), 0);
        return;
    }
    const pb_io_ops *ops = it->f.io->ops;
    int filesystem = ops->filesystem_open(it->f.io, "/log");
    CHECK_INT(pb_log_settle(it->f.log, &failure), 0);
    CHECK_INT(ops->filesystem_sync(it->f.io, filesystem), 0);
    CHECK_INT(pb_log_close(it->f.log, true, &failure), 0);
    it->f.log = NULL;
    CHECK_INT(ops->filesystem_sync(it->f.io, filesystem), 0);
    CHECK_INT(ops->file_close(it->f.io, filesystem), 0);
}

static void check_aborted(life *it);
static void check_stable(life *it);

static void stop_and_start(life *it)
{
    close_in_order(it);
    it->f.log = NULL;
    it->now.synced_end = it->now.written_end;
    it->now.checkpoint_recovery = it->now.written_end;
    it->f.options.clean = true;
    it->f.options.log_start_offset = it->now.start_offset;
    fixture_open(&it->f);
    it->f.options.clean = false;
    check_aborted(it);
    check_stable(it);
}

/* Appends may come between the steps. */
static void mark(life *it)
{
    pb_mark_plan plan;
    pb_failure failure = {0};
    CHECK_INT(pb_log_mark_begin(it->f.log, &plan), 0);
    if (draw(it, 2) == 0)
        append(it, false);
    CHECK_INT(pb_log_sync(it->f.log, &it->f.guard, &failure), 0);
    it->now.synced_end = pb_log_durable_end(it->f.log);
    if (draw(it, 2) == 0)
        append(it, false);
    CHECK_INT(pb_log_mark_finish(it->f.log, &it->f.guard, &plan, &failure), 0);
    pb_log_mark_release(&plan);
}

static void operate(life *it)
{
    pb_failure failure = {0};
    if (it->f.options.rings != NULL && draw(it, 4) == 0)
        change_engine(it);
    switch (draw(it, it->marks_often ? 24 : 14)) {
    case 0:
        CHECK_INT(pb_log_sync(it->f.log, &it->f.guard, &failure), 0);
        it->now.synced_end = pb_log_durable_end(it->f.log);
        break;
    case 1:
        CHECK_INT(pb_log_upkeep(it->f.log, &it->f.guard, 1000, &failure), 0);
        break;
    case 2:
        checkpoint(it);
        break;
    case 3:
        CHECK_INT(pb_log_roll(it->f.log, &it->f.guard, &failure), 0);
        break;
    case 4:
        append(it, true);
        break;
    case 5:
        stop_and_start(it);
        break;
    case 10:
        delete_some(it);
        break;
    case 11:
        truncate_log(it);
        break;
    case 12:
        clean(it);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        append(it, false);
        break;
    default:
        mark(it);
    }
}

/* ---- what must be there --------------------------------------------------------------------------------------- */

static void check_batches(life *it, const promise *promised)
{
    static uint8_t buffer[1 << 20];
    int64_t next = pb_log_start_offset(it->f.log), end = pb_log_written_end(it->f.log);
    CHECK(end >= promised->written_end);
    /* Names are not ordered on this disk: a segment that was never synced may go, and a later one stay. */
    bool nothing_synced = promised->written_end <= promised->start_offset;
    CHECK(next >= promised->checkpoint_start && (next <= promised->start_offset || nothing_synced));
    int i = 0;
    while (i < promised->batch_count && batches[i].last_offset < next)
        i++;
    while (next < end) {
        pb_log_slice slice = {0};
        CHECK_INT(pb_log_read(it->f.log, &it->f.guard, next, sizeof buffer, end, true, &slice), 0);
        CHECK(slice.segment != NULL && slice.length > 0);
        CHECK_INT(pb_io_read_all(it->f.io, slice.file, buffer, (size_t)slice.length, slice.position), 0);
        size_t position = 0;
        pb_batch_header header;
        while (position < (size_t)slice.length) {
            const uint8_t *batch = buffer + position;
            CHECK_INT(pb_batch_next(buffer, (size_t)slice.length, &position, &header), 0);
            if (header.size_bytes == 0)
                break;
            CHECK(i < promised->batch_count && pb_batch_crc_matches(batch, header.size_bytes));
            CHECK_INT(header.base_offset, batches[i].base_offset);
            CHECK_INT(header.crc, batches[i].crc);
            next = pb_batch_last_offset(&header) + 1;
            i++;
        }
        pb_segment_release(slice.segment);
    }
    it->now.batch_count = i;
    it->now.written_end = end;
    it->now.start_offset = pb_log_start_offset(it->f.log);
    if (it->now.synced_end > end)
        it->now.synced_end = end;
}

/* A producer that did not hear of its last batch sends it again. */
static void check_duplicates(life *it)
{
    for (int producer = 1; producer <= PRODUCERS + TRANSACTIONAL; producer++) {
        const sent *last = last_of(it, producer, false);
        if (last == NULL || last->base_offset < pb_log_start_offset(it->f.log))
            continue;
        pb_append *again = append_make(spec_of(last, it->leader_epoch));
        CHECK_INT(pb_log_append(it->f.log, again), PB_LOG_DUPLICATE);
        CHECK_INT(again->base_offset, last->base_offset);
        append_free(again);
    }
}

/* Where the transaction began that batch `i` is of, or ends. */
static int64_t first_of_transaction(int i)
{
    int first = i;
    for (int before = i - 1; before >= 0; before--) {
        if (batches[before].producer != batches[i].producer)
            continue;
        if (batches[before].marker != 0)
            break;
        first = before;
    }
    return batches[first].base_offset;
}

/* Readers of committed records stop at the oldest open transaction, if the log has all of it. */
static void check_stable(life *it)
{
    int64_t start = pb_log_start_offset(it->f.log), end = pb_log_written_end(it->f.log), stable = end;
    for (int producer = PRODUCERS + 1; producer <= PRODUCERS + TRANSACTIONAL; producer++) {
        const sent *last = last_of(it, producer, true);
        if (last == NULL || last->marker != 0)
            continue;
        int64_t first = first_of_transaction((int)(last - batches));
        if (first < stable)
            stable = first;
    }
    if (stable >= start)
        CHECK_INT(pb_log_last_stable_offset(it->f.log, end), stable);
}

/* The log knows of every transaction that was aborted, as far as it has all of it, and of no other. */
static void check_aborted(life *it)
{
    pb_transaction_entry *entries;
    int count, matched = 0;
    int64_t start = pb_log_start_offset(it->f.log), end = pb_log_written_end(it->f.log);
    CHECK_INT(pb_log_aborted_entries(it->f.log, &it->f.guard, start, end, &entries, &count), 0);
    for (int i = 0; i < it->now.batch_count; i++) {
        if (batches[i].producer <= PRODUCERS || batches[i].base_offset < start)
            continue;
        int64_t first = first_of_transaction(i);
        if (batches[i].marker != 1)
            continue;
        int at = 0;
        while (at < count && entries[at].last_offset != batches[i].base_offset)
            at++;
        CHECK(at < count || first < start);
        if (at == count)
            continue;
        CHECK_INT(entries[at].producer_id, batches[i].producer);
        CHECK(entries[at].first_offset == first || first < start);
        matched++;
    }
    CHECK_INT(count, matched);
    free(entries);
}

/* ---- rings ---------------------------------------------------------------------------------------------------- */

static const char RINGS[] = "/dev/shm/rings";

static int replay_ring(void *context, const char *name, bool is_directory)
{
    pb_io *io = context;
    char path[300];
    pb_ring_content content;
    int64_t moved_bytes;
    pb_failure failure = {0};
    CHECK(!is_directory && snprintf(path, sizeof path, "%s/%s", RINGS, name) < (int)sizeof path);
    CHECK_INT(pb_ring_inspect(io, path, &content, &failure), 0);
    if (content.sealed && pb_ring_replay(io, path, &content, "/log", false, &moved_bytes, &failure) != 0)
        check_fail(__FILE__, __LINE__, "%s", failure.text);
    CHECK_INT(io->ops->unlink(io, path), 0);
    return 0;
}

static void replay_rings(pb_io *io)
{
    int rc = io->ops->directory_list(io, RINGS, replay_ring, io);
    CHECK(rc == 0 || rc == -ENOENT);
}

/* What a broker does before it opens its logs. */
static void start_rings(life *it, uint64_t seed)
{
    enum { SIM_RING_BYTES = 4 * PB_DIRECT_BLOCK_BYTES };
    static pb_ring_identity identity = {.topic = "t"};
    replay_rings(it->f.io);
    pb_ring_pool_options options = {
        .io = it->f.io, .directory = RINGS, .budget_bytes = 1 << 20, .ring_bytes = SIM_RING_BYTES};
    memcpy(options.session_id, &seed, sizeof seed);
    CHECK_INT(pb_ring_pool_open(&options, &it->f.options.rings, NULL), 0);
    CHECK_INT(pb_ring_pool_add_log_dir(it->f.options.rings, "", FIXTURE_TOPIC_ID), 0);
    it->f.options.ring_identity = &identity;
}

/* The log of this disk without its mark. */
static void check_without_mark(life *it, pb_io *disk)
{
    fixture whole = it->f;
    whole.options.io = whole.io = disk;
    whole.options.rings = NULL;
    int rc = disk->ops->unlink(disk, "/log/" PB_MARK_FILE);
    CHECK(rc == 0 || rc == -ENOENT);
    replay_rings(disk);
    fixture_open(&whole);
    check_twins(it->f.log, &it->f.guard, whole.log, &whole.guard);
    fixture_close(&whole, false);
    disk->ops->close(disk);
}

static bool live(life *it, uint64_t seed, const life_plan *plan, int64_t crash_point)
{
    promise before = it->now;
    pb_io *twin = crash.twin;
    it->now.kind = draw(it, 2) == 0 ? PB_SIM_KILL : PB_SIM_POWER_CUT;
    it->f.log = NULL;
    hook(it, seed, crash_point);
    it->marks_often = plan->marks_often;
    if (plan->rings)
        start_rings(it, seed);
    it->f.options.recovery_point = it->now.checkpoint_recovery;
    it->f.options.log_start_offset = it->now.checkpoint_start;
    it->f.options.gap_offset = plan->gaps_unknown ? -1 : it->now.checkpoint_gap;
    it->f.options.clean = false;
    fixture_open(&it->f);
    if (twin != NULL)
        check_without_mark(it, twin);
    if (it->f.recovery.gap_offset > it->now.checkpoint_gap)
        it->now.checkpoint_gap = it->f.recovery.gap_offset;
    if (crash.image == NULL) {
        check_batches(it, &before);
        check_duplicates(it);
        check_aborted(it);
        check_stable(it);
    }
    for (int i = 0; i < OPERATIONS && crash.image == NULL; i++)
        operate(it);
    bool crashed = crash.image != NULL;
    if (!crashed) {
        crash.countdown = 1;
        append(it, false);
        if (crash.image == NULL) /* it went into the ring */
            count_operation(it->f.io);
    }
    CHECK(crash.image != NULL);
    pb_failure failure = {0};
    CHECK_INT(pb_log_close(it->f.log, false, &failure), 0);
    if (plan->rings)
        pb_ring_pool_close(it->f.options.rings);
    it->f.io->ops = crash.real;
    it->f.io->ops->close(it->f.io);
    it->f.io = it->f.options.io = crash.image;
    pb_sim_set_faults(crash.image, &(pb_sim_faults){.cold_read = 500000});
    it->now = crash.promised;
    /* Should the next crash come before the log is open again, no more is promised than now. */
    if (it->now.kind == PB_SIM_POWER_CUT)
        it->now.written_end = it->now.synced_end;
    return crashed;
}

/* One run. Returns whether the crash of its first life came where the plan said, and not only after its last operation.
 */
static bool live_through(uint64_t seed, life_plan plan)
{
    static life it;
    memset(&it, 0, sizeof it);
    CHECK(plan.lives <= MAX_LIVES);
    it.random = seed * 0x9e3779b97f4a7c15u + 1;
    fixture_init(&it.f);
    it.f.io->ops->close(it.f.io);
    fixture_remove(it.f.directory);
    CHECK_INT(pb_io_sim_open(seed, &it.f.io), 0);
    strcpy(it.f.directory, "/log");
    it.f.options.io = it.f.io;
    it.f.options.config.segment_bytes = 4096;
    it.f.options.config.index_interval_bytes = 256;
    it.f.options.config.compact = seed % 2 == 0;
    it.transactions = seed % 3 == 0;
    crash.twin = NULL;
    /* The simulated clock is far from the timestamps here. */
    it.f.options.config.producer_expiration_ms = INT64_MAX;
    bool crashed_at_point = live(&it, seed * MAX_LIVES, &plan, plan.crash_point);
    for (int i = 1; i < plan.lives; i++)
        (void)live(&it, seed * MAX_LIVES + (uint64_t)i, &plan, 0);
    it.f.io->ops->close(it.f.io);
    if (crash.twin != NULL)
        crash.twin->ops->close(crash.twin);
    pthread_mutex_destroy(&it.f.mutex);
    return crashed_at_point;
}

#endif
