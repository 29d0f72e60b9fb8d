/* A partition with durable acks and a hot log, of which nothing runs by itself: reactor, syncer and flusher are the
 * test's. Header only. */
#ifndef PB_TESTS_REPLICA_HOT_FIXTURE_H
#define PB_TESTS_REPLICA_HOT_FIXTURE_H

#include "replica/append.h"
#include "tests/log/log_fixture.h"

enum {
    HOT_RING_BYTES = 64 << 10,
    HOT_MEDIUM_BYTES = 20000,
    HOT_UNZEROED_BYTES = 1 << 20, /* so many come before the first that zeros are written for */
};

typedef struct hot_fixture {
    fixture f;
    pb_ring_identity identity;
    char rings[64];
    pb_partition *partition;
} hot_fixture;

/* Before the test gives it its operations. */
static UNUSED void hot_init(hot_fixture *h)
{
    fixture_init(&h->f);
    strcpy(h->rings, "/dev/shm/pb-hot-test-XXXXXX");
    CHECK(mkdtemp(h->rings) != NULL);
}

static UNUSED void hot_start(hot_fixture *h, const pb_io_ops *ops, int64_t segment_bytes)
{
    fixture *f = &h->f;
    f->io->ops = ops;
    const pb_ring_pool_options options = {
        .io = f->io, .directory = h->rings, .budget_bytes = 1 << 20, .ring_bytes = HOT_RING_BYTES};
    const uint8_t directory_id[PB_RING_UUID_BYTES] = {7};
    CHECK_INT(pb_ring_pool_open(&options, &f->options.rings, NULL), 0);
    CHECK_INT(pb_ring_pool_add_log_dir(f->options.rings, "/tmp", directory_id), 0);
    memset(&h->identity, 0, sizeof h->identity);
    strcpy(h->identity.topic, "t");
    f->options.ring_identity = &h->identity;
    f->options.config.segment_bytes = segment_bytes;
    fixture_open(f);
    CHECK_INT(pb_log_heat(f->log, &f->guard), 0);
    const pb_partition_rules rules = {.min_insync_replicas = 1, .durable_acks = true};
    h->partition = pb_partition_create(f->io, "t", FIXTURE_TOPIC_ID, 0, f->log, &rules);
    pb_partition_start_leading(h->partition, 0);
}

/* Nobody has it any more: it can be taken. */
static UNUSED void hot_end(hot_fixture *h)
{
    fixture *f = &h->f;
    CHECK(pb_partition_take_log(h->partition) == f->log);
    pb_partition_release(h->partition);
    (void)pb_log_close(f->log, true, NULL);
    f->log = NULL;
    pb_ring_pool_close(f->options.rings);
    fixture_remove(h->rings);
    fixture_free(f);
}

static UNUSED void hot_produce(hot_fixture *h, pb_reactor *reactor, int value_length,
                               void (*done)(pb_partition_append_op *op, pb_reactor *here))
{
    pb_append *append = append_make((batch_spec){.timestamp = 1000, .value_length = value_length});
    pb_partition_append_op *op = calloc(1, sizeof *op);
    CHECK(op != NULL);
    op->append = *append;
    pb_list_init(&op->append.link);
    op->done = done;
    free(append);
    bool must_pump;
    CHECK_INT(pb_partition_append_batch(h->partition, op, &must_pump), 0);
    CHECK(must_pump);
    pb_partition_pump(h->partition, reactor);
}

/* A round as a thread makes it. */
static UNUSED void hot_sync_by_thread(hot_fixture *h)
{
    pb_log_sync_round round;
    CHECK(pb_partition_sync_begin(h->partition, &round));
    int result = pb_partition_sync_run(h->partition, &round, NULL);
    CHECK_INT(result, 0);
    CHECK(!pb_partition_sync_end(h->partition, &round, result).again);
}

/* Zeros where the next batches go, by a reactor that has no thread: their syncs can be its writes from then on. */
static UNUSED void hot_come_to_zeros(hot_fixture *h, pb_reactor *reactor,
                                     void (*done)(pb_partition_append_op *op, pb_reactor *here))
{
    CHECK(reactor->thread == NULL);
    pb_log_guard guard = pb_partition_guard(h->partition);
    while (pb_log_wants_zeros(h->f.log))
        CHECK_INT(pb_log_write_zeros(h->f.log, &guard, NULL), 0);
    while (pb_log_active(h->f.log)->size_bytes < HOT_UNZEROED_BYTES) {
        hot_produce(h, reactor, HOT_MEDIUM_BYTES, done);
        hot_sync_by_thread(h);
    }
}

#endif
