/* Searches in indexes, and the texts and bytes of the small derived files, damaged ones included. */
#include "log/derived/leader_epochs.h"
#include "log/derived/producer_snapshot.h"
#include "log/segment/index_buffer.h"
#include "tests/log/log_fixture.h"

TEST(a_search_in_a_file_finds_what_a_walk_finds)
{
    fixture f;
    fixture_init(&f);
    static const uint32_t SIZES[] = {8, 12};
    for (int kind = 0; kind < 2; kind++) {
        uint32_t entry_bytes = SIZES[kind];
        uint32_t key_bytes = kind == 0 ? 4 : 8;
        for (uint32_t count = 0; count < 1200; count += count < 520 ? 1 : 97) {
            uint8_t *entries = calloc(count + 1, entry_bytes);
            for (uint32_t i = 0; i < count; i++) {
                if (key_bytes == 4)
                    pb_be32_store(entries + i * entry_bytes, 10 * i);
                else
                    pb_be64_store(entries + i * entry_bytes, 10 * i);
            }
            file_store(&f, "index", entries, (size_t)count * entry_bytes);
            char path[256];
            snprintf(path, sizeof(path), "%s/index", f.directory);
            int file = f.io->ops->file_open(f.io, path, PB_OPEN_READ);
            for (int64_t key = -5; key < 10 * (int64_t)count + 10; key += 1 + count / 40) {
                int64_t expected = key < 0 ? 0 : key / 10 + 1 > count ? count : key / 10 + 1;
                uint8_t entry[12];
                CHECK_INT(pb_index_search_file(f.io, file, count, entry_bytes, key_bytes, key, entry), expected);
                CHECK_INT(pb_index_search(entries, count, entry_bytes, key_bytes, key), expected);
                if (expected > 0)
                    CHECK_MEM(entry, entries + (expected - 1) * entry_bytes, entry_bytes);
            }
            f.io->ops->file_close(f.io, file);
            free(entries);
        }
    }
    fixture_free(&f);
}

TEST(epochs_make_way_as_kafka_says)
{
    pb_leader_epochs epochs;
    pb_leader_epochs_init(&epochs);
    CHECK_INT(pb_leader_epochs_assign(&epochs, 1, 0), 0);
    CHECK_INT(pb_leader_epochs_assign(&epochs, 2, 10), 0);
    CHECK_INT(pb_leader_epochs_assign(&epochs, 2, 15), 0);
    CHECK_INT(pb_leader_epochs_assign(&epochs, 3, 10), 0); /* epoch 2 had no records */
    CHECK_INT(epochs.count, 2);
    CHECK_INT(pb_leader_epochs_at(&epochs, 9), 1);
    CHECK_INT(pb_leader_epochs_at(&epochs, 10), 3);
    pb_leader_epochs_assign(&epochs, 5, 30);
    pb_leader_epochs_truncate_start(&epochs, 20);
    CHECK_INT(epochs.count, 2);
    CHECK_INT(epochs.entries[0].start_offset, 20);
    CHECK_INT(pb_leader_epochs_at(&epochs, 19), -1);
    pb_leader_epochs_truncate_end(&epochs, 30);
    CHECK_INT(pb_leader_epochs_latest(&epochs), 3);
    pb_leader_epochs_clear(&epochs);
}

static void set_epochs(pb_leader_epochs *epochs, const char *text)
{
    pb_leader_epochs_clear(epochs);
    CHECK_INT(pb_leader_epochs_parse(epochs, text, strlen(text)), 0);
}

static void check_epochs(const pb_leader_epochs *epochs, const char *expected)
{
    size_t length;
    char *text = pb_leader_epochs_format(epochs, &length);
    text[length - 1] = 0; /* without its last newline */
    CHECK_STR(text, expected);
    free(text);
}

TEST(epochs_are_those_of_the_batches_that_are_replayed)
{
    pb_leader_epochs epochs;
    pb_leader_epochs_init(&epochs);
    /* Nothing to learn: a batch inside an epoch, one from before the log's start, and one whose first record is. */
    set_epochs(&epochs, "0\n3\n3 10\n4 20\n6 30\n");
    CHECK_INT(pb_leader_epochs_replay(&epochs, 2, 0), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 3, 8), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 3, 15), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 6, 40), 0); /* and none of epoch 4, of which the cleaner left nothing */
    CHECK_INT(pb_leader_epochs_replay(&epochs, -1, 50), 0);
    check_epochs(&epochs, "0\n3\n3 10\n4 20\n6 30");
    CHECK(epochs.version == epochs.saved_version);
    /* Epoch 5 was given up; what another leader had of epoch 4 came in its place. */
    set_epochs(&epochs, "0\n2\n3 0\n5 3\n");
    CHECK_INT(pb_leader_epochs_replay(&epochs, 3, 0), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 4, 3), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 4, 4), 0);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 6, 5), 0);
    check_epochs(&epochs, "0\n3\n3 0\n4 3\n6 5");
    CHECK_INT(epochs.unsaved_offset, 3);
    /* What follows may be right, and comes again. */
    set_epochs(&epochs, "0\n3\n3 0\n5 3\n6 5\n");
    CHECK_INT(pb_leader_epochs_replay(&epochs, 3, 4), 0);
    check_epochs(&epochs, "0\n1\n3 0");
    CHECK_INT(epochs.unsaved_offset, 3);
    CHECK_INT(pb_leader_epochs_replay(&epochs, 6, 5), 0);
    check_epochs(&epochs, "0\n2\n3 0\n6 5");
    set_epochs(&epochs, "0\n2\n3 0\n5 30\n");
    CHECK_INT(pb_leader_epochs_replay(&epochs, 5, 20), 0);
    check_epochs(&epochs, "0\n2\n3 0\n5 20");
    pb_leader_epochs_clear(&epochs);
}

TEST(damaged_epoch_checkpoints_are_refused)
{
    static const char *const BAD[] = {"",
                                      "0",
                                      "0\n",
                                      "1\n0\n",
                                      "0\n1\n",
                                      "0\n1\n1 2",
                                      "0\n1\n1 2\n3 4\n",
                                      "0\n2\n1 2\n1 4\n",
                                      "0\n2\n1 5\n2 5\n",
                                      "0\n1\n-1 2\n",
                                      "0\n1\n1 99999999999999999999\n",
                                      "0\n1\n2147483648 1\n",
                                      "0\n1\n1  2\n"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        pb_leader_epochs epochs;
        pb_leader_epochs_init(&epochs);
        CHECK_INT(pb_leader_epochs_parse(&epochs, BAD[i], strlen(BAD[i])), -EBADMSG);
        CHECK_INT(epochs.count, 0);
    }
}

TEST(a_snapshot_with_any_wrong_bit_is_refused)
{
    pb_producers producers = {0};
    for (int64_t id = 1; id <= 3; id++) {
        pb_producer_append append = {.producer_id = id,
                                     .base_offset = 10 * id,
                                     .last_offset = 10 * id + 4,
                                     .record_count = 5,
                                     .max_timestamp_ms = 1000 * id,
                                     .is_transactional = id == 2};
        CHECK_INT(pb_producers_apply(&producers, &append, NULL), 0);
    }
    size_t length;
    uint8_t *bytes = pb_producer_snapshot_format(&producers, &length);
    pb_producers loaded = {0};
    CHECK_INT(pb_producer_snapshot_parse(&loaded, bytes, length, 0, INT64_MAX), 0);
    CHECK_INT(loaded.count, 3);
    CHECK_INT(pb_producers_first_unstable(&loaded, 0), 20);
    pb_producers_clear(&loaded);
    CHECK_INT(pb_producer_snapshot_parse(&loaded, bytes, length, 2500, 500), 0);
    CHECK_INT(loaded.count, 2); /* the first has expired; the second has an open transaction */
    pb_producers_clear(&loaded);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_INT(pb_producer_snapshot_parse(&loaded, bytes, length, 0, INT64_MAX), -EBADMSG);
        CHECK_INT(loaded.count, 0);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++)
        CHECK_INT(pb_producer_snapshot_parse(&loaded, bytes, cut, 0, INT64_MAX), -EBADMSG);
    free(bytes);
    pb_producers_clear(&producers);
}

CHECK_MAIN()
