/*
 * A log against a model in memory: seeded random appends, failed writes, rolls, reads, truncations, deletions, upkeep,
 * clean and unclean stops with torn tails. After every step the log must say what the model says.
 */
#include "tests/log/log_fixture.h"

enum { MODEL_BATCHES = 20000, MODEL_PRODUCERS = 4, MODEL_STEPS = 1200, MODEL_SEEDS = 6 };

typedef struct model_batch {
    int64_t base_offset;
    int32_t count;
    int64_t timestamp;
    int64_t producer_id;
    int32_t base_sequence;
    uint32_t crc;
} model_batch;

typedef struct model {
    fixture f;
    uint64_t random;
    model_batch batches[MODEL_BATCHES]; /* written, not truncated; deleted ones stay */
    int count;
    int64_t start;
    int64_t clock;
} model;

static uint32_t chance(model *m, uint32_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)(m->random >> 32) % below;
}

static int64_t model_end(const model *m)
{
    return m->count == 0 ? 0 : m->batches[m->count - 1].base_offset + m->batches[m->count - 1].count;
}

static int32_t model_next_sequence(const model *m, int64_t producer_id)
{
    for (int i = m->count - 1; i >= 0; i--) {
        if (m->batches[i].producer_id == producer_id)
            return m->batches[i].base_sequence + m->batches[i].count;
    }
    return 0;
}

static int model_find(const model *m, int64_t offset)
{
    int low = 0;
    int high = m->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m->batches[middle].base_offset + m->batches[middle].count <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Read at a random offset and compare every whole batch of the slice. */
static void check_read(model *m, int64_t offset)
{
    pb_log_slice slice;
    int64_t max_bytes = 1 + chance(m, 6000);
    int64_t upper = model_end(m);
    if (chance(m, 3) == 0 && m->count > 0)
        upper = m->batches[chance(m, (uint32_t)m->count)].base_offset;
    CHECK_INT(pb_log_read(m->f.log, &m->f.guard, offset, max_bytes, upper, true, &slice), 0);
    int at = model_find(m, offset);
    if (offset >= upper) {
        CHECK(slice.segment == NULL);
        return;
    }
    CHECK(slice.segment != NULL);
    CHECK_INT(slice.base_offset, m->batches[at].base_offset);
    uint8_t *bytes = malloc((size_t)slice.length);
    CHECK_INT(pb_io_read_all(m->f.io, slice.file, bytes, (size_t)slice.length, slice.position), 0);
    size_t position = 0;
    for (;;) {
        pb_batch_header header;
        CHECK_INT(pb_batch_next(bytes, (size_t)slice.length, &position, &header), 0);
        if (header.size_bytes == 0)
            break;
        CHECK_INT(header.base_offset, m->batches[at].base_offset);
        CHECK_INT(header.crc, m->batches[at].crc);
        CHECK(header.base_offset < upper);
        at++;
    }
    CHECK(position > 0);
    free(bytes);
    pb_segment_release(slice.segment);
}

static void check_time(model *m)
{
    int64_t wanted = (int64_t)chance(m, (uint32_t)m->clock + 5);
    pb_log_position found;
    CHECK_INT(pb_log_offset_for_timestamp(m->f.log, &m->f.guard, wanted, INT64_MAX, &found), 0);
    int64_t expected = -1;
    for (int i = model_find(m, m->start); i < m->count && expected < 0; i++) {
        const model_batch *batch = &m->batches[i];
        for (int r = 0; r < batch->count && expected < 0; r++) {
            if (batch->timestamp + r >= wanted && batch->base_offset + r >= m->start)
                expected = batch->base_offset + r;
        }
    }
    CHECK_INT(found.offset, expected);
}

static void check_all(model *m)
{
    CHECK_INT(pb_log_written_end(m->f.log), model_end(m));
    CHECK_INT(pb_log_appended_end(m->f.log), model_end(m));
    CHECK_INT(pb_log_start_offset(m->f.log), m->start);
    CHECK(pb_log_durable_end(m->f.log) <= model_end(m));
    CHECK(pb_log_recovery_point(m->f.log) <= pb_log_durable_end(m->f.log) || m->start == model_end(m));
    for (int i = 0; i < 3; i++)
        check_read(m, m->start + chance(m, (uint32_t)(model_end(m) - m->start) + 1));
    check_time(m);
    pb_producer_info infos[MODEL_PRODUCERS];
    int count = pb_log_producers(m->f.log, infos, MODEL_PRODUCERS);
    for (int64_t id = 1; id <= MODEL_PRODUCERS; id++) {
        int newest = m->count - 1;
        while (newest >= 0 && m->batches[newest].producer_id != id)
            newest--;
        int at = 0;
        while (at < count && infos[at].producer_id != id)
            at++;
        /* A producer whose batches lie below the log start may be known or not. */
        CHECK(at < count || newest < 0 || m->batches[newest].base_offset < m->start);
        if (at < count)
            CHECK_INT(infos[at].last_sequence, model_next_sequence(m, id) - 1);
    }
}

static void model_take(model *m, const pb_append *append)
{
    CHECK(m->count < MODEL_BATCHES);
    m->batches[m->count++] = (model_batch){
        .base_offset = append->base_offset,
        .count = append->record_count,
        .timestamp = append->max_timestamp_ms - append->record_count + 1,
        .producer_id = append->producer_id,
        .base_sequence = append->base_sequence,
        .crc = pb_be32_load(append->bytes + PB_BATCH_CRC_POSITION),
    };
}

/* Queue some appends, then write them; `fails` makes one write stop somewhere. */
static void step_append(model *m, bool fails)
{
    int64_t id = 1 + chance(m, MODEL_PRODUCERS);
    int32_t sequence = model_next_sequence(m, id);
    int queued = 1 + (int)chance(m, 12);
    for (int i = 0; i < queued; i++) {
        batch_spec spec = {
            .record_count = 1 + (int)chance(m, 5),
            .value_length = (int)chance(m, 300),
            .timestamp = m->clock + chance(m, 30),
            .leader_epoch = (int32_t)(m->clock / 20000),
        };
        if (chance(m, 2) == 0) {
            spec.producer_id = id;
            spec.base_sequence = sequence;
            sequence += spec.record_count;
        }
        m->clock += chance(m, 40);
        CHECK_INT(pb_log_append(m->f.log, append_make(spec)), 0);
    }
    pb_link finished;
    pb_link *link;
    pb_list_init(&finished);
    while (log_write_limited(&m->f, fails && chance(m, 2) == 0 ? (int64_t)chance(m, 3000) : -1, &finished)) {
    }
    int64_t end = model_end(m);
    bool broken = pb_log_needs_repair(m->f.log);
    while ((link = pb_list_pop_front(&finished)) != NULL) {
        pb_append *append = PB_CONTAINER(link, pb_append, link);
        CHECK(append->error == 0 || broken);
        if (append->error == 0) {
            CHECK_INT(append->base_offset, end);
            end += append->record_count;
            model_take(m, append);
        }
        append_free(append);
    }
    if (broken)
        CHECK_INT(pb_log_repair(m->f.log, &m->f.guard, NULL), 0);
}

static void step_truncate(model *m)
{
    int64_t span = model_end(m) - m->start;
    int64_t to = model_end(m) - chance(m, (uint32_t)(span < 60 ? span : 60) + 1);
    while (m->count > 0 && model_end(m) > to)
        m->count--;
    if (m->start > model_end(m))
        m->start = model_end(m);
    CHECK_INT(pb_log_truncate(m->f.log, &m->f.guard, to, NULL), 0);
}

static void step_delete(model *m)
{
    int deleted;
    int64_t span = model_end(m) - m->start;
    m->start += chance(m, (uint32_t)(span / 2) + 1);
    CHECK_INT(pb_log_set_start_offset(m->f.log, m->start), 0);
    CHECK_INT(pb_log_delete_segments(m->f.log, &m->f.guard, &deleted, NULL), 0);
    CHECK(m->f.log->segment_count == 1 || m->f.log->segments[1]->base_offset > m->start);
    if (chance(m, 2) == 0)
        CHECK_INT(pb_log_purge(m->f.log, &m->f.guard, INT64_MAX, NULL), 0);
}

/* What a write that SIGKILL cut short leaves behind. */
static void tear(model *m, const char *name)
{
    pb_append *append = append_make((batch_spec){.record_count = 3, .value_length = 200, .timestamp = m->clock});
    pb_batch_set_base_offset(append->bytes, model_end(m));
    size_t length;
    uint8_t *bytes = file_load(&m->f, name, &length);
    size_t torn = chance(m, append->length);
    uint8_t *longer = realloc(bytes, length + torn + 1);
    CHECK(longer != NULL);
    bytes = longer;
    memcpy(bytes + length, append->bytes, torn);
    file_store(&m->f, name, bytes, length + torn);
    free(bytes);
    append_free(append);
}

static void step_restart(model *m, bool clean)
{
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)pb_log_active(m->f.log)->base_offset);
    m->f.options.recovery_point = pb_log_recovery_point(m->f.log);
    m->f.options.log_start_offset = m->start;
    fixture_close(&m->f, clean);
    if (!clean && chance(m, 2) == 0)
        tear(m, name);
    fixture_open(&m->f);
    CHECK_INT(m->f.recovery.old_magic_found, false);
    if (clean) {
        CHECK_INT(m->f.recovery.rebuilt_index_count, 0);
        CHECK_INT(m->f.recovery.scanned_bytes, 0);
    }
}

static void step(model *m)
{
    uint32_t choice = chance(m, 100);
    if (choice < 60)
        step_append(m, false);
    else if (choice < 68)
        step_append(m, true);
    else if (choice < 74)
        CHECK_INT(pb_log_upkeep(m->f.log, &m->f.guard, 0, NULL), 0);
    else if (choice < 78)
        CHECK_INT(pb_log_sync(m->f.log, &m->f.guard, NULL), 0);
    else if (choice < 82)
        CHECK_INT(pb_log_roll(m->f.log, &m->f.guard, NULL), 0);
    else if (choice < 87)
        step_truncate(m);
    else if (choice < 90)
        step_delete(m);
    else
        step_restart(m, choice < 94);
}

TEST(the_log_is_what_the_model_is)
{
    for (uint64_t seed = 1; seed <= MODEL_SEEDS; seed++) {
        model *m = calloc(1, sizeof(*m));
        m->random = seed * UINT64_C(0x9E3779B97F4A7C15);
        fixture_init(&m->f);
        m->f.options.config.segment_bytes = 6000 + chance(m, 20000);
        m->f.options.config.index_interval_bytes = chance(m, 1500);
        m->f.options.config.segment_index_bytes = 200 + chance(m, 2000);
        m->f.options.config.producer_expiration_ms = INT64_MAX;
        m->f.options.config.segment_ms = 5000;
        m->f.options.config.preallocate = seed % 3 == 0;
        fixture_open(&m->f);
        for (int i = 0; i < MODEL_STEPS; i++) {
            step(m);
            check_all(m);
        }
        fixture_free(&m->f);
        free(m);
    }
}

CHECK_MAIN()
