/* Bytes that are no batches any more: what stays readable, what is kept when a log is cut, what is reported. */
#include "base/kafka_error.h"
#include "log/segment/damage.h"
#include "log/segment/scan.h"
#include "tests/log/log_fixture.h"

enum { BATCHES = 62 };

/* Where each batch of a test lies. */
typedef struct placed {
    int64_t segment;
    int64_t position;
    int64_t base_offset;
    int64_t end_offset;
    int64_t size_bytes;
} placed;

static placed places[BATCHES];

/* 62 batches of three records over several segments; closed as `clean` says. */
static void fill(fixture *f, bool compact, bool clean)
{
    fixture_init(f);
    f->options.config.segment_bytes = 10000;
    f->options.config.index_interval_bytes = 1500;
    f->options.config.compact = compact;
    fixture_open(f);
    for (int i = 0; i < BATCHES; i++) {
        pb_append *append = append_make((batch_spec){
            .record_count = 3, .value_length = 200, .timestamp = 1000 + i, .producer_id = 5, .base_sequence = i * 3});
        CHECK_INT(pb_log_append(f->log, append), 0);
        places[i] = (placed){.base_offset = append->base_offset,
                             .end_offset = append->base_offset + 3,
                             .size_bytes = append->length,
                             .position = append->place.position};
        log_write(f);
        places[i].segment = pb_log_active(f->log)->base_offset;
    }
    CHECK(f->log->segment_count > 3);
    fixture_close(f, clean);
}

static void flip(const fixture *f, int64_t segment, int64_t position)
{
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)segment);
    size_t length;
    uint8_t *bytes = file_load(f, name, &length);
    CHECK(position < (int64_t)length);
    bytes[position] ^= 0x40;
    file_store(f, name, bytes, length);
    free(bytes);
}

/* Read from `offset`: the base offset of what comes, or -error; -100 nothing. */
static int64_t read_at(fixture *f, int64_t offset, int64_t max_bytes, int64_t *end_position)
{
    pb_log_slice slice;
    int rc = pb_log_read(f->log, &f->guard, offset, max_bytes, pb_log_written_end(f->log), true, &slice);
    if (rc != 0)
        return -rc;
    if (slice.segment == NULL)
        return -100;
    *end_position = slice.position + slice.length;
    pb_segment_release(slice.segment);
    return slice.base_offset;
}

/* Every offset but those of batch `bad` is read; a read before it ends in front of it. */
static void check_reads(fixture *f, int bad, int end)
{
    int64_t end_position = 0;
    for (int i = 0; i < end; i++) {
        int64_t found = read_at(f, places[i].base_offset + 1, 1 << 20, &end_position);
        CHECK_INT(found, i == bad ? -PB_CORRUPT_MESSAGE : places[i].base_offset);
        if (i < bad && places[i].segment == places[bad].segment)
            CHECK_INT(end_position, places[bad].position);
    }
}

TEST(durable_batches_behind_damage_stay)
{
    /* In the length, the magic, the producer id and the records of a batch in the middle of the active segment. */
    static const int WHERE[] = {8, 16, 45, 120};
    for (int clean = 0; clean < 2; clean++) {
        for (size_t i = 0; i < sizeof(WHERE) / sizeof(WHERE[0]); i++) {
            fixture f;
            fill(&f, false, clean != 0);
            const placed *bad = &places[BATCHES - 2];
            CHECK(bad->segment == places[BATCHES - 1].segment && bad->position > 0);
            flip(&f, bad->segment, bad->position + WHERE[i]);
            if (clean) { /* the walk over the end is what meets it */
                char path[256];
                snprintf(path, sizeof(path), "%s/%020lld.index", f.directory, (long long)bad->segment);
                CHECK_INT(unlink(path), 0);
            }
            f.options.recovery_point = clean ? 0 : places[BATCHES - 1].end_offset;
            fixture_open(&f);
            CHECK_INT(pb_log_written_end(f.log), places[BATCHES - 1].end_offset);
            CHECK_INT(f.recovery.hole_count, 1);
            CHECK_INT(f.recovery.hole_segment, bad->segment);
            CHECK_INT(f.recovery.hole_position, bad->position);
            CHECK_INT(f.recovery.hole_offset, bad->base_offset);
            CHECK_INT(f.recovery.hole_end_offset, bad->end_offset);
            CHECK_INT(f.recovery.truncated_bytes, 0);
            CHECK_INT(f.recovery.kept_file_count, 0);
            check_reads(&f, BATCHES - 2, BATCHES);
            pb_producer_info info;
            CHECK_INT(pb_log_producers(f.log, &info, 1), 1);
            CHECK_INT(info.last_sequence, BATCHES * 3 - 1);
            fixture_free(&f);
        }
    }
}

TEST(an_index_is_rebuilt_over_damage_in_a_sealed_segment)
{
    fixture f;
    fill(&f, false, true);
    const placed *bad = &places[3];
    CHECK_INT(bad->segment, 0);
    flip(&f, 0, bad->position + 9);
    char path[256];
    snprintf(path, sizeof(path), "%s/%020d.index", f.directory, 0);
    CHECK_INT(unlink(path), 0);
    fixture_open(&f);
    CHECK_INT(f.recovery.rebuilt_index_count, 1);
    CHECK_INT(f.recovery.hole_count, 1);
    CHECK_INT(f.recovery.hole_position, bad->position);
    check_reads(&f, 3, BATCHES);
    pb_log_position found;
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 1006, pb_log_written_end(f.log), &found), 0);
    CHECK_INT(found.offset, 14);
    fixture_free(&f);
}

/* A record may hold batches, of another log or a later part of this one. */
TEST(a_batch_inside_a_damaged_one_is_not_taken_for_one_of_its_segment)
{
    for (int scans = 0; scans < 2; scans++) {
        fixture f;
        fill(&f, false, true);
        const placed *bad = &places[3], *behind = &places[5], *later = &places[BATCHES - 1];
        CHECK(bad->segment == 0 && behind->segment == 0 && later->segment != 0);
        char name[64];
        snprintf(name, sizeof(name), "%020lld.log", (long long)later->segment);
        size_t length, later_length;
        uint8_t *from = file_load(&f, name, &later_length);
        uint8_t *bytes = file_load(&f, "00000000000000000000.log", &length);
        CHECK(bad->position + 20 + later->size_bytes < behind->position);
        memcpy(bytes + bad->position + 20, from + later->position, (size_t)later->size_bytes);
        file_store(&f, "00000000000000000000.log", bytes, length);
        free(bytes);
        free(from);
        if (scans) { /* all of the log is read again */
            file_store(&f, "leader-epoch-checkpoint", (const uint8_t *)"?", 1);
        } else { /* for the indexes of this segment */
            char path[256];
            snprintf(path, sizeof(path), "%s/%020d.index", f.directory, 0);
            CHECK_INT(unlink(path), 0);
        }
        fixture_open(&f);
        CHECK_INT(pb_log_written_end(f.log), later->end_offset);
        CHECK_INT(f.recovery.hole_count, 1);
        CHECK_INT(f.recovery.hole_position, bad->position);
        CHECK_INT(f.recovery.hole_end_offset, behind->base_offset);
        CHECK_INT(f.recovery.kept_file_count, 0);
        int64_t end_position;
        for (int i = 0; i < BATCHES; i++)
            CHECK_INT(read_at(&f, places[i].base_offset + 1, 1 << 20, &end_position),
                      i == 3 || i == 4 ? -PB_CORRUPT_MESSAGE : places[i].base_offset);
        fixture_free(&f);
    }
}

TEST(what_was_written_behind_the_end_of_a_durable_segment_takes_nothing_with_it)
{
    fixture f;
    fill(&f, false, false);
    int next = 0;
    while (places[next].segment == 0)
        next++;
    char name[64];
    snprintf(name, sizeof(name), "%020d.log", 0);
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    uint8_t *longer = malloc(length + 100);
    CHECK(longer != NULL);
    memcpy(longer, bytes, length);
    memset(longer + length, 0x5a, 100);
    file_store(&f, name, longer, length + 100);
    free(longer);
    free(bytes);
    file_store(&f, "leader-epoch-checkpoint", (const uint8_t *)"?", 1);
    f.options.recovery_point = places[next].base_offset;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), places[BATCHES - 1].end_offset);
    CHECK_INT(f.recovery.hole_count, 1);
    CHECK_INT(f.recovery.hole_position, (int64_t)length);
    CHECK_INT(f.recovery.kept_file_count, 0);
    check_reads(&f, -1, BATCHES);
    fixture_free(&f);
}

TEST(readers_find_their_way_around_damage_that_nobody_knows_of)
{
    fixture f;
    fill(&f, false, true);
    fixture_open(&f);
    flip(&f, 0, places[3].position + 9);
    int64_t end_position;
    for (int i = 0; i < BATCHES; i++)
        CHECK_INT(read_at(&f, places[i].base_offset + 2, 600, &end_position),
                  i == 3 ? -PB_CORRUPT_MESSAGE : places[i].base_offset);
    fixture_free(&f);
}

TEST(an_index_that_lies_is_not_believed)
{
    fixture f;
    fill(&f, false, true);
    fixture_open(&f);
    const char *name = "00000000000000000000.index";
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    for (size_t bit = 0; bit < length * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        file_store(&f, name, bytes, length);
        int64_t end_position;
        for (int i = 0; places[i].segment == 0; i++)
            CHECK_INT(read_at(&f, places[i].base_offset, 600, &end_position), places[i].base_offset);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(bytes);
    fixture_free(&f);
}

static int64_t size_of(const fixture *f, const char *format, int64_t segment, int64_t position)
{
    char name[96];
    snprintf(name, sizeof(name), format, (long long)segment, (long long)position);
    if (!file_exists(f, name))
        return -1;
    size_t length;
    free(file_load(f, name, &length));
    return (int64_t)length;
}

TEST(what_follows_a_bad_batch_is_kept_when_the_log_is_cut)
{
    for (int compact = 0; compact < 2; compact++) {
        fixture f;
        fill(&f, compact != 0, false);
        int bad = 25;
        while (places[bad].position == 0 || places[bad + 1].segment != places[bad].segment)
            bad++;
        int64_t torn_bytes = size_of(&f, "%020lld.log", places[bad].segment, 0) - places[bad].position;
        int64_t last_bytes = size_of(&f, "%020lld.log", places[BATCHES - 1].segment, 0);
        for (int round = 0; round < 2; round++) {
            flip(&f, places[bad].segment, places[bad].position + 70);
            f.options.recovery_point = places[10].end_offset;
            fixture_open(&f);
            CHECK_INT(pb_log_written_end(f.log), places[bad].base_offset);
            CHECK_INT(f.recovery.hole_count, 0);
            CHECK_INT(f.recovery.cut_segment, places[bad].segment);
            CHECK_INT(f.recovery.cut_position, places[bad].position);
            CHECK_INT(f.recovery.cut_offset, places[bad].base_offset);
            CHECK_INT(f.recovery.kept_bytes, f.recovery.truncated_bytes);
            const char *format = round == 0 ? "%020lld.log.damaged-%lld" : "%020lld.log.damaged-%lld.2";
            int64_t kept = size_of(&f, format, places[bad].segment, places[bad].position);
            if (round == 0) {
                CHECK_INT(f.recovery.kept_batch_count, BATCHES - bad - 1);
                CHECK_INT(f.recovery.cut_end_offset, places[BATCHES - 1].end_offset);
                CHECK_INT(kept, torn_bytes);
                CHECK_INT(size_of(&f, "%020lld.log.damaged-%lld", places[BATCHES - 1].segment, 0), last_bytes);
                CHECK_INT(size_of(&f, "%020lld.index", places[BATCHES - 1].segment, 0), -1);
            } else {
                CHECK_INT(kept, 2 * places[bad].size_bytes);
            }
            /* The same again: the files that are there stay. */
            for (int i = 0; round == 0 && i < 2; i++)
                CHECK(log_append(&f, (batch_spec){.record_count = 3, .value_length = 200, .timestamp = 5000 + i}) >= 0);
            places[bad].size_bytes = pb_log_active(f.log)->size_bytes - places[bad].position;
            places[bad].size_bytes /= 2;
            fixture_close(&f, false);
        }
        fixture_free(&f);
    }
}

TEST(a_torn_end_is_cut_and_not_kept)
{
    fixture f;
    fill(&f, false, false);
    const placed *last = &places[BATCHES - 1];
    flip(&f, last->segment, last->position + 70);
    f.options.recovery_point = places[10].end_offset;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), last->base_offset);
    CHECK_INT(f.recovery.truncated_bytes, last->size_bytes);
    CHECK_INT(f.recovery.kept_file_count, 0);
    CHECK_INT(size_of(&f, "%020lld.log.damaged-%lld", last->segment, last->position), -1);
    fixture_free(&f);
}

/* Blocks that were filled up with zeros, or made ahead. */
static void pad(const fixture *f, int64_t segment, size_t zeros)
{
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)segment);
    size_t length;
    uint8_t *bytes = file_load(f, name, &length);
    uint8_t *padded = calloc(1, length + zeros);
    memcpy(padded, bytes, length);
    file_store(f, name, padded, length + zeros);
    free(padded);
    free(bytes);
}

TEST(padding_is_cut_off_and_nobody_hears_of_it)
{
    static const size_t ZEROS[] = {1, 16, 60, 61, 4000, 3 << 20};
    for (size_t i = 0; i < sizeof(ZEROS) / sizeof(ZEROS[0]); i++) {
        for (int where = 0; where < 4; where++) {
            fixture f;
            fill(&f, false, false);
            const placed *last = &places[BATCHES - 1];
            int64_t sealed = places[0].segment;
            int64_t end = last->end_offset;
            CHECK(sealed != last->segment);
            char path[256];
            struct stat index;
            snprintf(path, sizeof(path), "%s/%020lld.index", f.directory, (long long)sealed);
            /* Of the active one; of a sealed one that is read again, above and below the recovery point. */
            pad(&f, where == 0 || where == 1 ? last->segment : sealed, ZEROS[i]);
            f.options.recovery_point = where == 1 ? end : where == 3 ? last->base_offset : 0;
            CHECK(where < 3 || (stat(path, &index) == 0 && index.st_size == 0)); /* not written yet, so it is read */
            fixture_open(&f);
            CHECK_INT(pb_log_written_end(f.log), end);
            CHECK_INT(f.recovery.truncated_bytes, 0);
            CHECK_INT(f.recovery.hole_count, 0);
            CHECK_INT(f.recovery.kept_file_count, 0);
            check_reads(&f, -1, BATCHES);
            size_t length;
            snprintf(path, sizeof(path), "%020lld.log", (long long)last->segment);
            free(file_load(&f, path, &length));
            CHECK_INT(length, last->position + last->size_bytes);
            fixture_free(&f);
        }
    }
}

TEST(zeros_where_batches_were_are_no_padding)
{
    fixture f;
    fill(&f, false, false);
    const placed *last = &places[BATCHES - 1];
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)last->segment);
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    memset(bytes + last->position, 0, length - (size_t)last->position);
    file_store(&f, name, bytes, length);
    free(bytes);
    f.options.recovery_point = last->end_offset;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), last->base_offset);
    CHECK_INT(f.recovery.truncated_bytes, last->size_bytes);
    CHECK_INT(f.recovery.kept_file_count, 1);
    fixture_free(&f);
}

TEST(a_torn_end_that_was_durable_is_kept)
{
    fixture f;
    fill(&f, false, false);
    const placed *last = &places[BATCHES - 1];
    flip(&f, last->segment, last->position + 70);
    f.options.recovery_point = last->end_offset;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), last->base_offset);
    CHECK_INT(f.recovery.kept_file_count, 1);
    CHECK_INT(f.recovery.kept_batch_count, 0);
    CHECK_INT(size_of(&f, "%020lld.log.damaged-%lld", last->segment, last->position), last->size_bytes);
    fixture_free(&f);
}

static int64_t full_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    (void)io;
    (void)file;
    (void)iov;
    (void)count;
    (void)position;
    return -ENOSPC;
}

TEST(without_room_to_keep_it_nothing_is_cut)
{
    fixture f;
    fill(&f, false, false);
    int bad = 25;
    while (places[bad].position == 0 || places[bad + 1].segment != places[bad].segment)
        bad++;
    flip(&f, places[bad].segment, places[bad].position + 70);
    const pb_io_ops *good = f.io->ops;
    pb_io_ops full = *good;
    full.file_write = full_write;
    f.io->ops = &full;
    pb_failure failure;
    CHECK_INT(pb_log_open(&f.options, &f.log, &f.recovery, &failure), -ENOSPC);
    f.io->ops = good;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), places[bad].base_offset);
    CHECK(f.recovery.kept_file_count >= 1);
    CHECK(size_of(&f, "%020lld.log.damaged-%lld", places[BATCHES - 1].segment, 0) > 0);
    fixture_free(&f);
}

/* The transaction index of a sealed segment comes back with the others when one of them has to be rebuilt. */
TEST(aborted_transactions_are_found_again)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 3000;
    fixture_open(&f);
    for (int i = 0; i < 4; i++) {
        batch_spec data = {.record_count = 2,
                           .value_length = 900,
                           .timestamp = 1000,
                           .producer_id = 7,
                           .base_sequence = i * 2,
                           .is_transactional = true};
        CHECK(log_append(&f, data) >= 0);
        CHECK(log_append(&f, (batch_spec){.timestamp = 1000, .producer_id = 7, .marker = 1}) >= 0);
    }
    CHECK(f.log->segment_count >= 3);
    int64_t second = f.log->segments[1]->base_offset;
    fixture_close(&f, true);
    static const char *const SUFFIX[] = {"index", "timeindex", "txnindex"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%020lld.%s", (long long)second, SUFFIX[i]);
        file_store(&f, name, "??", 2);
        f.options.clean = true;
        fixture_open(&f);
        CHECK_INT(f.recovery.rebuilt_index_count, 1);
        pb_aborted_transaction *aborted = NULL;
        int count = 0;
        CHECK_INT(pb_log_aborted_transactions(f.log, &f.guard, 0, pb_log_written_end(f.log), &aborted, &count), 0);
        CHECK_INT(count, 4);
        for (int t = 0; t < count; t++)
            CHECK_INT(aborted[t].first_offset, t * 3);
        free(aborted);
        fixture_close(&f, true);
    }
    fixture_free(&f);
}

CHECK_MAIN()
