/* Walking over segments: what a healthy log tells, and what each kind of damage does. */
#include "log/walk/walk.h"

#include <fcntl.h>

#include "tests/log/log_fixture.h"

enum { BATCHES = 60, ROWS = 256, EVERYTHING = 0x3fff };

typedef struct walked {
    pb_log_walk_row rows[ROWS];
    int count;
    pb_log_walk_totals totals;
} walked;

/* A closed log of one segment with BATCHES batches of three records. */
static void make_log(fixture *f)
{
    fixture_init(f);
    f->options.config.index_interval_bytes = 700;
    fixture_open(f);
    for (int i = 0; i < BATCHES; i++)
        (void)log_append(f, (batch_spec){.record_count = 3, .value_length = 50, .timestamp = 1000 + 10 * i});
    fixture_close(f, true);
}

static size_t read_file(const fixture *f, const char *suffix, uint8_t *out, size_t capacity)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%020d.%s", f->directory, 0, suffix);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    ssize_t got = read(file, out, capacity);
    CHECK(got >= 0 && (size_t)got < capacity);
    close(file);
    return (size_t)got;
}

static void flip(const fixture *f, const char *suffix, int64_t position, uint8_t mask)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%020d.%s", f->directory, 0, suffix);
    int file = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    CHECK_INT(pread(file, &byte, 1, position), 1);
    byte ^= mask;
    CHECK_INT(pwrite(file, &byte, 1, position), 1);
    close(file);
}

static void walk_over(const fixture *f, uint32_t wanted, walked *out)
{
    static uint8_t index[65536];
    static uint8_t time_index[65536];
    char path[128];
    snprintf(path, sizeof(path), "%s/%020d.log", f->directory, 0);
    pb_log_walk *walk;
    CHECK_INT(pb_log_walk_create(f->io, &walk), 0);
    pb_log_walk_file file = {.path = path, .wanted = wanted, .deep_every = 1};
    file.index_length = read_file(f, "index", index, sizeof(index));
    file.index = index;
    file.time_index_length = read_file(f, "timeindex", time_index, sizeof(time_index));
    file.time_index = time_index;
    CHECK(file.index_length >= 80);
    CHECK_INT(pb_log_walk_begin(walk, &file), 0);
    out->count = 0;
    /* In small helpings, so that the walk stops and goes on in every state. */
    int got;
    do {
        got = pb_log_walk_next(walk, out->rows + out->count, 3);
        CHECK(got >= 0);
        out->count += got;
        CHECK(out->count < ROWS - 3);
    } while (got == 3);
    pb_log_walk_sum(walk, &out->totals);
    pb_log_walk_destroy(walk);
}

TEST(a_healthy_log_has_only_its_first_epoch_to_tell)
{
    fixture f;
    make_log(&f);
    walked seen;
    walk_over(&f, EVERYTHING, &seen);
    CHECK_INT(seen.count, 1);
    CHECK_INT(seen.rows[0].flags, PB_LOG_WALK_EPOCH);
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK_INT(seen.count, BATCHES);
    CHECK_INT(seen.totals.batches, BATCHES);
    CHECK_INT(seen.totals.records, 3 * BATCHES);
    CHECK_INT(seen.totals.deep_records, 3 * BATCHES);
    CHECK_INT(seen.totals.null_keys, 3 * BATCHES);
    CHECK_INT(seen.totals.end_offset, 3 * BATCHES);
    CHECK_INT(seen.totals.file_first_offset, 0);
    CHECK_INT(seen.totals.min_timestamp, 1000);
    CHECK_INT(seen.totals.max_timestamp, 1000 + 10 * (BATCHES - 1) + 2);
    fixture_free(&f);
}

/* Clients may send it, and brokers store it. */
TEST(unknown_attributes_and_any_negative_producer_id_are_no_damage)
{
    fixture f;
    fixture_init(&f);
    f.options.config.index_interval_bytes = 700;
    fixture_open(&f);
    for (int i = 0; i < BATCHES; i++)
        (void)log_append(&f, (batch_spec){.record_count = 3,
                                          .value_length = 50,
                                          .timestamp = 1000 + 10 * i,
                                          .producer_id = i % 2 == 0 ? -5 : INT64_MIN,
                                          .producer_epoch = -5,
                                          .base_sequence = -5,
                                          .attributes = 0xff80});
    fixture_close(&f, true);
    walked seen;
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK_INT(seen.totals.batches, BATCHES);
    int64_t position = seen.rows[10].position;
    walk_over(&f, EVERYTHING, &seen);
    CHECK_INT(seen.count, 1);
    CHECK_INT(seen.rows[0].flags, PB_LOG_WALK_EPOCH);
    flip(&f, "log", position + 70, 0x20);
    walk_over(&f, EVERYTHING, &seen);
    CHECK_INT(seen.totals.batches, BATCHES - 1); /* what follows the damage is found again */
    flip(&f, "log", position + 9, 0x20);         /* ... also when the damaged batch does not tell where it begins */
    walk_over(&f, EVERYTHING, &seen);
    CHECK_INT(seen.totals.batches, BATCHES - 1);
    fixture_free(&f);
}

TEST(a_flipped_bit_costs_the_batch_it_is_in)
{
    for (int byte = 0; byte < 90; byte++) {
        fixture f;
        make_log(&f);
        walked seen;
        walk_over(&f, PB_LOG_WALK_EVERY, &seen);
        pb_log_walk_row tenth = seen.rows[10];
        flip(&f, "log", tenth.position + byte, 0x20);
        walk_over(&f, EVERYTHING, &seen);
        /* 0-7 base offset, 12-15 leader epoch: not covered, seen from the neighbours. */
        bool placed = byte < 8 || (byte >= 12 && byte < 16);
        CHECK(seen.count >= 2);
        CHECK_INT(seen.totals.batches, placed ? BATCHES : BATCHES - 1);
        CHECK_INT(seen.totals.damaged_bytes, placed ? 0 : tenth.size_bytes);
        bool found = false;
        for (int i = 1; i < seen.count; i++) {
            const pb_log_walk_row *row = &seen.rows[i];
            uint32_t about = byte < 8 ? PB_LOG_WALK_GAP | PB_LOG_WALK_BACK
                             : placed ? PB_LOG_WALK_EPOCH
                                      : PB_LOG_WALK_CRC | PB_LOG_WALK_GARBAGE;
            found = found || ((row->flags & about) != 0 && row->position == tenth.position);
            /* Entries that name what is damaged are not damaged themselves. */
            CHECK(placed || (row->flags & (PB_LOG_WALK_INDEX | PB_LOG_WALK_TIME)) == 0);
        }
        CHECK(found);
        fixture_free(&f);
    }
}

TEST(every_flipped_bit_of_an_index_is_one_wrong_entry)
{
    fixture f;
    make_log(&f);
    walked seen;
    for (int bit = 0; bit < 8 * 80; bit++) {
        flip(&f, "index", bit / 8, (uint8_t)(1 << (bit % 8)));
        walk_over(&f, EVERYTHING, &seen);
        CHECK(seen.count >= 2 && seen.count <= 3);
        CHECK_INT(seen.rows[0].flags | seen.rows[1].flags, PB_LOG_WALK_INDEX | PB_LOG_WALK_EPOCH);
        flip(&f, "index", bit / 8, (uint8_t)(1 << (bit % 8)));
    }
    for (int bit = 0; bit < 8 * 96; bit++) {
        flip(&f, "timeindex", bit / 8, (uint8_t)(1 << (bit % 8)));
        walk_over(&f, EVERYTHING, &seen);
        CHECK(seen.count >= 2 && seen.count <= 3);
        uint32_t flags = seen.rows[0].flags | seen.rows[1].flags;
        CHECK_INT(flags & ~(uint32_t)PB_LOG_WALK_INNER, PB_LOG_WALK_TIME | PB_LOG_WALK_EPOCH);
        flip(&f, "timeindex", bit / 8, (uint8_t)(1 << (bit % 8)));
    }
    fixture_free(&f);
}

/* Kafka before 3.8 named the record that has the timestamp, which may be any of its batch. */
TEST(a_time_index_entry_that_names_another_record_of_the_right_batch_is_told_apart)
{
    fixture f;
    make_log(&f);
    walked seen;
    static uint8_t time_index[65536];
    size_t length = read_file(&f, "timeindex", time_index, sizeof(time_index));
    CHECK(length >= 24);
    for (size_t at = 8; at < 24; at += 12) {
        uint32_t last = pb_be32_load(time_index + at);
        for (uint32_t back = 0; back < 4; back++) {
            uint8_t mask = (uint8_t)(last ^ (last - back)); /* all within the lowest byte */
            flip(&f, "timeindex", (int64_t)at + 3, mask);
            walk_over(&f, EVERYTHING, &seen);
            uint32_t flags = 0;
            for (int i = 0; i < seen.count; i++)
                flags |= seen.rows[i].flags & (PB_LOG_WALK_TIME | PB_LOG_WALK_INNER);
            uint32_t expected = back == 0 ? 0 : back < 3 ? PB_LOG_WALK_TIME | PB_LOG_WALK_INNER : PB_LOG_WALK_TIME;
            CHECK_INT(flags, expected);
            flip(&f, "timeindex", (int64_t)at + 3, mask);
        }
    }
    fixture_free(&f);
}

TEST(zeros_behind_the_last_batch_are_told_apart_from_garbage)
{
    fixture f;
    make_log(&f);
    char path[128];
    snprintf(path, sizeof(path), "%s/%020d.log", f.directory, 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t end = lseek(file, 0, SEEK_END);
    CHECK_INT(ftruncate(file, end + 3000000), 0);
    walked seen;
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK_INT(seen.count, BATCHES + 1);
    CHECK_INT(seen.rows[BATCHES].flags, PB_LOG_WALK_GARBAGE | PB_LOG_WALK_ZEROS);
    CHECK_INT(seen.rows[BATCHES].position, end);
    CHECK_INT(seen.rows[BATCHES].size_bytes, 3000000);
    CHECK_INT(pwrite(file, "x", 1, end + 2000000), 1);
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK_INT(seen.rows[BATCHES].flags, PB_LOG_WALK_GARBAGE);
    CHECK_INT(ftruncate(file, end - 10), 0);
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK_INT(seen.totals.batches, BATCHES - 1);
    CHECK((seen.rows[BATCHES - 1].flags & PB_LOG_WALK_GARBAGE) != 0);
    close(file);
    fixture_free(&f);
}

TEST(producers_and_transactions_are_followed)
{
    fixture f;
    fixture_init(&f);
    f.options.config.index_interval_bytes = 100;
    fixture_open(&f);
    for (int i = 0; i < 4; i++) {
        batch_spec spec = {.record_count = 2, .timestamp = 5, .producer_id = 9, .base_sequence = 2 * i};
        spec.is_transactional = true;
        (void)log_append(&f, spec);
    }
    (void)log_append(&f, (batch_spec){.timestamp = 6, .producer_id = 9, .marker = 1});
    (void)log_append(&f, (batch_spec){.timestamp = 6, .producer_id = 9, .base_sequence = 8, .is_transactional = true});
    for (int i = 0; i < 10; i++)
        (void)log_append(&f, (batch_spec){.timestamp = 6 + i, .value_length = 90});
    fixture_close(&f, true);
    walked seen;
    walk_over(&f, PB_LOG_WALK_TRANSACTIONAL | PB_LOG_WALK_CONTROL | PB_LOG_WALK_SEQUENCE, &seen);
    CHECK_INT(seen.count, 3);
    CHECK_INT(seen.rows[0].flags & PB_LOG_WALK_TRANSACTIONAL, PB_LOG_WALK_TRANSACTIONAL);
    CHECK_INT(seen.rows[1].flags, PB_LOG_WALK_CONTROL);
    CHECK_INT(seen.rows[1].control_type, 0);
    CHECK_INT(seen.rows[1].coordinator_epoch, 7);
    CHECK_INT(seen.rows[2].flags, PB_LOG_WALK_TRANSACTIONAL);
    CHECK_INT(seen.rows[2].base_offset, 9);
    fixture_free(&f);
}

static const pb_io_ops *real_ops;
static int64_t bad_position;

/* A disk with one block that cannot be read. */
static int64_t read_around_bad_block(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    if (position < bad_position + 4096 && position + (int64_t)length > bad_position)
        return -EIO;
    return real_ops->file_read(io, file, buffer, length, position);
}

TEST(a_block_that_cannot_be_read_costs_the_batches_in_it)
{
    fixture f;
    fixture_init(&f);
    f.options.config.index_interval_bytes = 700;
    fixture_open(&f);
    for (int i = 0; i < BATCHES; i++)
        (void)log_append(&f, (batch_spec){.record_count = 3, .value_length = 200, .timestamp = 1000 + 10 * i});
    fixture_close(&f, true);
    real_ops = f.io->ops;
    static pb_io_ops failing;
    failing = *real_ops;
    failing.file_read = read_around_bad_block;
    f.io->ops = &failing;
    walked seen;
    bad_position = 12288;
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    int bad = 0;
    int64_t position = 0;
    for (int i = 0; i < seen.count; i++) {
        CHECK_INT(seen.rows[i].position, position);
        position += seen.rows[i].size_bytes;
        if ((seen.rows[i].flags & PB_LOG_WALK_UNREADABLE) == 0)
            continue;
        bad++;
        CHECK(seen.rows[i].position <= bad_position && bad_position - seen.rows[i].position < 800);
        CHECK(position >= bad_position + 4096 && position - bad_position - 4096 < 800);
    }
    CHECK_INT(bad, 1);
    CHECK_INT(seen.totals.batches, seen.count - 1);
    CHECK(seen.count - 1 >= BATCHES - 8);
    bad_position = position - 100;
    walk_over(&f, PB_LOG_WALK_EVERY, &seen);
    CHECK((seen.rows[seen.count - 1].flags & PB_LOG_WALK_UNREADABLE) != 0);
    CHECK_INT(seen.totals.batches, BATCHES - 1);
    f.io->ops = real_ops;
    fixture_free(&f);
}

CHECK_MAIN()
