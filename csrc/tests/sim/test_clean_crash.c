/*
 * Cleaning and crashes on the simulated machine: after every single change that a pass makes to the disk, the machine
 * is killed or loses its power, and the log that is found must open, have every record that cleaning keeps, have none
 * twice, tell readers of aborted transactions, know its producers, and let itself be cleaned again.
 */
#include "io/sim/sim.h"
#include "tests/log/clean/clean_fixture.h"

enum { SEEDS = 12, RETENTION_MS = 40 };

static struct {
    const pb_io_ops *ops; /* the machine's own */
    clean_model *model;
    clean_batch *before; /* the log when the pass began */
    int before_count;
    clean_batch *after; /* and as it will be */
    int after_count;
    int64_t recovery_point;
    int64_t gap_offset;
    int64_t start_offset;
    int64_t end_offset; /* where the pass ends */
    uint64_t seed;
    int points;
} crash;

static void open_found(fixture *f, enum pb_sim_crash kind)
{
    pb_failure failure = {0};
    memset(f, 0, sizeof(*f));
    crash.seed = crash.seed * 6364136223846793005u + 1;
    CHECK_INT(pb_sim_crash(crash.model->f.io, kind, crash.seed, &f->io), 0);
    f->options = crash.model->f.options;
    f->options.io = f->io;
    f->options.clean = false;
    f->options.recovery_point = crash.recovery_point;
    f->options.gap_offset = crash.gap_offset;
    pthread_mutex_init(&f->mutex, NULL);
    f->guard = (pb_log_guard){fixture_lock, fixture_unlock, &f->mutex};
    int rc = pb_log_open(&f->options, &f->log, &f->recovery, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "crash point %d: open: %d %s", crash.points, rc, failure.text);
}

static const clean_item *find_item(const clean_batch *batches, int count, int64_t offset, const clean_batch **batch)
{
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < batches[i].count; k++) {
            if (batches[i].items[k].offset == offset) {
                *batch = &batches[i];
                return &batches[i].items[k];
            }
        }
    }
    return NULL;
}

static void check_found(fixture *f, const clean_batch *found, int count)
{
    const clean_batch *batch;
    int64_t next = 0;
    for (int i = 0; i < count; i++) {
        CHECK(found[i].base_offset >= next);
        next = found[i].last_offset + 1;
        for (int k = 0; k < found[i].count; k++) {
            const clean_item *was = find_item(crash.before, crash.before_count, found[i].items[k].offset, &batch);
            CHECK(was != NULL);
            CHECK_MEM(&found[i].items[k], was, sizeof(*was));
        }
    }
    for (int i = 0; i < crash.after_count; i++) {
        for (int k = 0; k < crash.after[i].count; k++) {
            const clean_item *is = find_item(found, count, crash.after[i].items[k].offset, &batch);
            if (is == NULL)
                check_fail(__FILE__, __LINE__, "crash point %d: offset %" PRId64 " is lost", crash.points,
                           crash.after[i].items[k].offset);
        }
    }
    CHECK_INT(pb_log_written_end(f->log), crash.model->end);
}

/* Aborted records that came back have their transaction's entry with them. */
static void check_aborted(fixture *f, const clean_batch *found, int count)
{
    pb_aborted_transaction *aborted;
    int aborted_count;
    CHECK_INT(pb_log_aborted_transactions(f->log, &f->guard, 0, crash.model->end, &aborted, &aborted_count), 0);
    for (int i = 0; i < count; i++) {
        const clean_batch *batch;
        if (found[i].count == 0 || found[i].control || !found[i].transactional)
            continue;
        CHECK(find_item(crash.before, crash.before_count, found[i].items[0].offset, &batch) != NULL);
        if (crash.model->transactions[batch->transaction] != MODEL_ABORTED)
            continue;
        bool told = false;
        for (int k = 0; k < aborted_count; k++)
            told = told ||
                   (aborted[k].producer_id == found[i].producer_id && aborted[k].first_offset <= found[i].base_offset);
        if (!told)
            check_fail(__FILE__, __LINE__, "crash point %d: aborted batch %" PRId64 " would be read", crash.points,
                       found[i].base_offset);
    }
    free(aborted);
}

static void check_producers(fixture *f)
{
    pb_producer_info infos[MODEL_PRODUCERS];
    int count = pb_log_producers(f->log, infos, MODEL_PRODUCERS);
    int known = 0;
    for (int i = 0; i < MODEL_PRODUCERS; i++)
        known += crash.model->producers[i].known;
    CHECK_INT(count, known);
    for (int i = 0; i < count; i++)
        CHECK_INT(infos[i].last_sequence, crash.model->producers[infos[i].producer_id - 1].next_sequence - 1);
}

/* Another pass comes to the same keys and values. */
static void clean_again(fixture *f)
{
    pb_failure failure = {0};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    pb_clean_settings settings = clean_settings(crash.start_offset, crash.model->clock);
    settings.upper_offset = crash.end_offset;
    settings.delete_retention_ms = RETENTION_MS;
    int rc = pb_log_clean(f->log, &f->guard, &settings, &throttle, &stats, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "crash point %d: clean: %d %s", crash.points, rc, failure.text);
    int count;
    int items = 0, wanted = 0;
    clean_batch *found = clean_log_read(f, &count);
    check_found(f, found, count);
    for (int i = 0; i < count; i++)
        items += found[i].control ? 0 : found[i].count;
    for (int i = 0; i < crash.after_count; i++)
        wanted += crash.after[i].control ? 0 : crash.after[i].count;
    CHECK_INT(items, wanted);
    free(found);
}

static void crash_here(enum pb_sim_crash kind)
{
    fixture f;
    int count;
    open_found(&f, kind);
    clean_batch *found = clean_log_read(&f, &count);
    check_found(&f, found, count);
    check_aborted(&f, found, count);
    check_producers(&f);
    clean_again(&f);
    free(found);
    pb_failure failure;
    CHECK_INT(pb_log_close(f.log, true, &failure), 0);
    f.io->ops->close(f.io);
    pthread_mutex_destroy(&f.mutex);
}

static void after_change(void)
{
    crash.points++;
    crash_here(crash.points % 2 == 0 ? PB_SIM_KILL : PB_SIM_POWER_CUT);
    crash_here(PB_SIM_POWER_CUT);
}

static int64_t crashing_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    int64_t result = crash.ops->file_write(io, file, iov, count, position);
    after_change();
    return result;
}

static int crashing_sync(pb_io *io, int file)
{
    int result = crash.ops->file_sync(io, file);
    after_change();
    return result;
}

static int crashing_rename(pb_io *io, const char *from, const char *to)
{
    int result = crash.ops->rename(io, from, to);
    if (result == 0)
        after_change();
    return result;
}

static int crashing_unlink(pb_io *io, const char *path)
{
    int result = crash.ops->unlink(io, path);
    if (result == 0)
        after_change();
    return result;
}

static int crashing_directory_sync(pb_io *io, const char *path)
{
    int result = crash.ops->directory_sync(io, path);
    after_change();
    return result;
}

/* Everything is durable; what the log is now and what a pass makes of it. false: there is nothing to clean. */
static bool prepare_pass(clean_model *m, pb_clean_settings *settings)
{
    pb_failure failure = {0};
    *settings = clean_settings(m->first_dirty, m->clock);
    int64_t stable = model_stable(m);
    int64_t active = pb_log_active(m->f.log)->base_offset;
    settings->upper_offset = stable < active ? stable : active;
    settings->delete_retention_ms = RETENTION_MS;
    CHECK_INT(pb_log_sync(m->f.log, &m->f.guard, &failure), 0);
    CHECK_INT(pb_log_upkeep(m->f.log, &m->f.guard, 1, &failure), 0);
    if (m->first_dirty >= settings->upper_offset)
        return false;
    crash.model = m;
    crash.before = malloc(CLEAN_BATCHES * sizeof(*crash.before));
    memcpy(crash.before, m->batches, (size_t)m->count * sizeof(*crash.before));
    crash.before_count = m->count;
    crash.start_offset = m->first_dirty;
    crash.end_offset = settings->upper_offset;
    /* The checkpoint of recovery points is written from time to time only. */
    crash.recovery_point = chance(m, 2) == 0 ? pb_log_recovery_point(m->f.log) : 0;
    crash.gap_offset = active;
    crash.points = 0;
    model_clean(m, settings->upper_offset, settings->upper_offset, m->clock, RETENTION_MS);
    crash.after = m->batches;
    crash.after_count = m->count;
    crash.ops = m->f.io->ops;
    return true;
}

/* One pass with crashes all along it. */
static void clean_crashing(clean_model *m)
{
    static pb_io_ops crashing;
    pb_failure failure = {0};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    pb_clean_settings settings;
    if (!prepare_pass(m, &settings))
        return;
    crashing = *crash.ops;
    crashing.file_write = crashing_write;
    crashing.file_sync = crashing_sync;
    crashing.rename = crashing_rename;
    crashing.unlink = crashing_unlink;
    crashing.directory_sync = crashing_directory_sync;
    m->f.io->ops = &crashing;
    int rc = pb_log_clean(m->f.log, &m->f.guard, &settings, &throttle, &stats, &failure);
    m->f.io->ops = crash.ops;
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "clean: %d %s", rc, failure.text);
    CHECK_INT(stats.end_offset, settings.upper_offset);
    model_compare(m, &m->f);
    crash_here(PB_SIM_POWER_CUT);
    free(crash.before);
}

/* ---- calls that fail ---- */

/* The call whose turn it is fails, once. */
static bool fails_now(void)
{
    return --crash.points == 0;
}

static int64_t failing_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    return fails_now() ? -ENOSPC : crash.ops->file_write(io, file, iov, count, position);
}

static int failing_sync(pb_io *io, int file)
{
    return fails_now() ? -EIO : crash.ops->file_sync(io, file);
}

static int failing_rename(pb_io *io, const char *from, const char *to)
{
    return fails_now() ? -EIO : crash.ops->rename(io, from, to);
}

static int failing_unlink(pb_io *io, const char *path)
{
    return fails_now() ? -EIO : crash.ops->unlink(io, path);
}

static int failing_directory_sync(pb_io *io, const char *path)
{
    return fails_now() ? -EIO : crash.ops->directory_sync(io, path);
}

static int failing_open(pb_io *io, const char *path, int flags)
{
    return fails_now() ? -EMFILE : crash.ops->file_open(io, path, flags);
}

/* One pass of which call `turn` fails; whether there was one. The log goes on, or says that it has to be opened again,
 * and readers find everything either way. */
static bool clean_failing(clean_model *m, int turn)
{
    static pb_io_ops failing;
    pb_failure failure = {0};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    pb_clean_settings settings;
    CHECK(prepare_pass(m, &settings));
    failing = *crash.ops;
    failing.file_open = failing_open;
    failing.file_write = failing_write;
    failing.file_sync = failing_sync;
    failing.rename = failing_rename;
    failing.unlink = failing_unlink;
    failing.directory_sync = failing_directory_sync;
    m->f.io->ops = &failing;
    crash.points = turn;
    int rc = pb_log_clean(m->f.log, &m->f.guard, &settings, &throttle, &stats, &failure);
    bool failed = crash.points <= 0;
    m->f.io->ops = crash.ops;
    crash.points = turn;
    if (!failed)
        CHECK_INT(rc, 0);
    int count;
    clean_batch *found = clean_log_read(&m->f, &count);
    check_found(&m->f, found, count);
    check_aborted(&m->f, found, count);
    free(found);
    crash_here(PB_SIM_KILL);
    crash_here(PB_SIM_POWER_CUT);
    if (!pb_log_failed(m->f.log) && rc != 0)
        clean_again(&m->f);
    free(crash.before);
    return failed;
}

static void start_on_sim(clean_model *m, uint64_t seed)
{
    model_start(m, seed);
    memset(&m->f, 0, sizeof(m->f));
    CHECK_INT(pb_io_sim_open(seed, &m->f.io), 0);
    m->f.options = (pb_log_options){
        .io = m->f.io,
        .directory = "/data/topic-0",
        .config =
            {
                .segment_bytes = 1500 + chance(m, 6000),
                .segment_ms = INT64_C(604800000),
                .segment_index_bytes = 10 << 20,
                .index_interval_bytes = 300,
                .producer_expiration_ms = INT64_MAX / 2,
                .flush_messages = INT64_MAX,
                .flush_ms = INT64_MAX,
                .compact = true,
            },
        .clean = true,
        .log_start_offset = -1,
        .gap_offset = -1,
    };
    pthread_mutex_init(&m->f.mutex, NULL);
    m->f.guard = (pb_log_guard){fixture_lock, fixture_unlock, &m->f.mutex};
    CHECK_INT(m->f.io->ops->directory_make(m->f.io, "/data"), 0);
    CHECK_INT(m->f.io->ops->directory_sync(m->f.io, "/"), 0);
    fixture_open(&m->f);
    CHECK_INT(m->f.io->ops->directory_sync(m->f.io, "/data"), 0);
}

static void fill_log(clean_model *m)
{
    for (uint32_t i = 15 + chance(m, 15); i > 0; i--) {
        model_append(m);
        if (chance(m, 3) == 0)
            model_end_transaction(m, MODEL_PRODUCERS / 2 + chance(m, MODEL_PRODUCERS / 2), chance(m, 2) == 0);
    }
    CHECK_INT(pb_log_roll(m->f.log, &m->f.guard, NULL), 0);
    m->clock += chance(m, 2 * RETENTION_MS);
}

static void stop_on_sim(clean_model *m)
{
    fixture_close(&m->f, !pb_log_failed(m->f.log));
    m->f.io->ops->close(m->f.io);
    pthread_mutex_destroy(&m->f.mutex);
    model_stop(m);
}

static void run_seed(uint64_t seed)
{
    static clean_model model;
    clean_model *m = &model;
    start_on_sim(m, seed);
    crash.seed = seed;
    for (int round = 0; round < 2; round++) {
        fill_log(m);
        clean_crashing(m);
        if (chance(m, 2) == 0)
            CHECK_INT(pb_log_purge(m->f.log, &m->f.guard, INT64_MAX, NULL), 0);
    }
    stop_on_sim(m);
}

TEST(a_crash_at_any_step_of_cleaning_loses_and_doubles_nothing)
{
    const char *only = getenv("PB_SIM_SEED");
    const char *many = getenv("PB_SIM_SEEDS");
    if (only != NULL) {
        run_seed(strtoull(only, NULL, 10));
        return;
    }
    uint64_t last = many != NULL ? strtoull(many, NULL, 10) : SEEDS;
    for (uint64_t seed = 1; seed <= last; seed++) {
        char name[32];
        snprintf(name, sizeof(name), "PB_SIM_SEED=%" PRIu64, seed);
        check_running = name;
        run_seed(seed);
    }
}

TEST(a_call_that_fails_at_any_step_of_cleaning_costs_nothing)
{
    static clean_model model;
    clean_model *m = &model;
    bool failed = true;
    for (int turn = 1; failed; turn++) {
        start_on_sim(m, 4);
        crash.seed = 4;
        fill_log(m);
        failed = clean_failing(m, turn);
        stop_on_sim(m);
        CHECK(turn < 500);
    }
}

CHECK_MAIN()
