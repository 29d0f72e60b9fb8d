/*
 * Cleaning against a model: seeded random appends with all codecs, tombstones, missing keys, idempotent and
 * transactional producers; several passes with small maps and small segments, restarts in between. After each pass
 * every batch of the log must be the model's, reads must find their way over the gaps, and a restart must know the
 * producers.
 */
#include "tests/log/clean/clean_fixture.h"

enum { SEEDS = 10, ROUNDS = 7, RETENTION_MS = 60 };

/* A random read gives the first batch that reaches the offset, over gaps and segments. */
static void check_reads(clean_model *m)
{
    for (int i = 0; i < 12; i++) {
        int64_t offset = (int64_t)chance(m, (uint32_t)m->end + 1);
        pb_log_slice slice;
        CHECK_INT(pb_log_read(m->f.log, &m->f.guard, offset, 1 + chance(m, 3000), INT64_MAX, true, &slice), 0);
        int at = 0;
        while (at < m->count && m->batches[at].last_offset < offset)
            at++;
        if (at == m->count) {
            CHECK(slice.segment == NULL);
            continue;
        }
        CHECK(slice.segment != NULL);
        uint8_t bytes[PB_BATCH_HEADER_BYTES];
        pb_batch_header header;
        CHECK_INT(pb_io_read_all(m->f.io, slice.file, bytes, sizeof(bytes), slice.position), 0);
        CHECK_INT(pb_batch_parse(bytes, 1 << 20, &header), 0);
        CHECK_INT(header.base_offset, m->batches[at].base_offset);
        pb_segment_release(slice.segment);
    }
}

static void check_times(clean_model *m)
{
    for (int i = 0; i < 5; i++) {
        int64_t wanted = 1000 + (int64_t)chance(m, (uint32_t)(m->clock - 990));
        int64_t expected = -1;
        for (int b = 0; b < m->count && expected < 0; b++) {
            for (int k = 0; k < m->batches[b].count && expected < 0; k++) {
                if (m->batches[b].items[k].timestamp >= wanted)
                    expected = m->batches[b].items[k].offset;
            }
        }
        pb_log_position found;
        CHECK_INT(pb_log_offset_for_timestamp(m->f.log, &m->f.guard, wanted, INT64_MAX, &found), 0);
        CHECK_INT(found.offset, expected);
    }
}

/* A reader of committed records is told of every aborted transaction that still has records. */
static void check_aborted(clean_model *m)
{
    pb_aborted_transaction *aborted;
    int count;
    CHECK_INT(pb_log_aborted_transactions(m->f.log, &m->f.guard, 0, m->end, &aborted, &count), 0);
    for (int b = 0; b < m->count; b++) {
        const clean_batch *batch = &m->batches[b];
        if (batch->control || batch->transaction < 0 || batch->count == 0 ||
            m->transactions[batch->transaction] != MODEL_ABORTED)
            continue;
        bool told = false;
        for (int i = 0; i < count; i++)
            told =
                told || (aborted[i].producer_id == batch->producer_id && aborted[i].first_offset <= batch->base_offset);
        CHECK(told);
    }
    free(aborted);
}

static void check_producers(clean_model *m)
{
    pb_producer_info infos[MODEL_PRODUCERS];
    int count = pb_log_producers(m->f.log, infos, MODEL_PRODUCERS);
    int known = 0;
    for (int i = 0; i < MODEL_PRODUCERS; i++)
        known += m->producers[i].known;
    CHECK_INT(count, known);
    for (int i = 0; i < count; i++)
        CHECK_INT(infos[i].last_sequence, m->producers[infos[i].producer_id - 1].next_sequence - 1);
}

static void remove_snapshots(clean_model *m)
{
    DIR *directory = opendir(m->f.directory);
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", m->f.directory, entry->d_name);
        if (strstr(entry->d_name, ".snapshot") != NULL)
            CHECK_INT(unlink(path), 0);
    }
    closedir(directory);
}

static void restart(clean_model *m)
{
    bool clean = chance(m, 2) == 0;
    m->f.options.recovery_point = chance(m, 2) == 0 ? pb_log_recovery_point(m->f.log) : 0;
    fixture_close(&m->f, clean);
    if (chance(m, 3) == 0)
        remove_snapshots(m);
    fixture_open(&m->f);
    CHECK_INT(pb_log_written_end(m->f.log), m->end);
}

static void clean_once(clean_model *m)
{
    pb_failure failure = {0};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    m->clock += chance(m, RETENTION_MS);
    pb_clean_settings settings = clean_settings(m->first_dirty, m->clock);
    int64_t stable = model_stable(m);
    int64_t active = pb_log_active(m->f.log)->base_offset;
    settings.upper_offset = stable;
    settings.delete_retention_ms = RETENTION_MS;
    if (chance(m, 3) == 0)
        settings.map_bytes = 24 * (2 + chance(m, 40));
    int64_t upper = stable < active ? stable : active;
    int rc = pb_log_clean(m->f.log, &m->f.guard, &settings, &throttle, &stats, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "clean: %d %s", rc, failure.text);
    if (m->first_dirty >= upper)
        return;
    CHECK(stats.end_offset > m->first_dirty && stats.end_offset <= upper);
    CHECK(stats.map_full || stats.end_offset == upper);
    model_clean(m, stats.end_offset, stable < active ? stable : active, m->clock, RETENTION_MS);
}

static void run_seed(uint64_t seed)
{
    static clean_model model;
    clean_model *m = &model;
    model_start(m, seed);
    fixture_init(&m->f);
    m->f.options.config.compact = true;
    m->f.options.config.segment_bytes = 2000 + chance(m, 20000);
    m->f.options.config.index_interval_bytes = 100 + chance(m, 1000);
    m->f.options.config.producer_expiration_ms = INT64_MAX / 2;
    fixture_open(&m->f);
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 20 + chance(m, 60); i > 0; i--) {
            model_append(m);
            if (chance(m, 4) == 0)
                model_end_transaction(m, MODEL_PRODUCERS / 2 + chance(m, MODEL_PRODUCERS / 2), chance(m, 2) == 0);
        }
        if (chance(m, 2) == 0)
            CHECK_INT(pb_log_roll(m->f.log, &m->f.guard, NULL), 0);
        if (chance(m, 2) == 0)
            CHECK_INT(pb_log_upkeep(m->f.log, &m->f.guard, 1, NULL), 0);
        for (uint32_t passes = 1 + chance(m, 3); passes > 0; passes--) {
            clean_once(m);
            model_compare(m, &m->f);
        }
        check_reads(m);
        check_times(m);
        check_aborted(m);
        if (chance(m, 3) == 0)
            CHECK_INT(pb_log_purge(m->f.log, &m->f.guard, INT64_MAX, NULL), 0);
        if (chance(m, 2) == 0)
            restart(m);
        model_compare(m, &m->f);
        check_producers(m);
    }
    fixture_free(&m->f);
    model_stop(m);
}

TEST(cleaning_does_what_the_model_does)
{
    const char *only = getenv("PB_CLEAN_SEED");
    if (only != NULL) {
        run_seed(strtoull(only, NULL, 10));
        return;
    }
    for (uint64_t seed = 1;
         seed <= (getenv("PB_CLEAN_SEEDS") != NULL ? strtoull(getenv("PB_CLEAN_SEEDS"), NULL, 10) : SEEDS); seed++) {
        run_seed(seed);
    }
}

CHECK_MAIN()
