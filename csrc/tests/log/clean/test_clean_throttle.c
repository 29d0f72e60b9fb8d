/* The cleaners' common rate, by the clock of the simulated machine. */
#include "io/sim/sim.h"
#include "log/clean/throttle.h"
#include "tests/check.h"

enum { RATE = 1 << 20 };

static int64_t taken_ms(pb_clean_throttle *throttle, pb_io *io, int64_t bytes, const atomic_bool *cancelled)
{
    int64_t began_ns = io->ops->monotonic_ns(io);
    pb_clean_throttle_wait(throttle, io, bytes, cancelled);
    return (io->ops->monotonic_ns(io) - began_ns) / 1000000;
}

TEST(bytes_take_as_long_as_the_rate_says)
{
    pb_io *io;
    CHECK_INT(pb_io_sim_open(1, &io), 0);
    atomic_bool cancelled = false;
    pb_clean_throttle throttle = {.bytes_per_second = RATE};
    CHECK_INT(taken_ms(&throttle, io, RATE / 4, &cancelled), 250);
    CHECK_INT(taken_ms(&throttle, io, 10 * RATE, &cancelled), 10000);
    /* What others have asked for comes first. */
    atomic_store(&throttle.due_ns, io->ops->monotonic_ns(io) + 3000000000);
    CHECK_INT(taken_ms(&throttle, io, RATE, &cancelled), 4000);
    CHECK_INT(taken_ms(&throttle, io, 0, &cancelled), 0);
    atomic_store(&cancelled, true);
    CHECK_INT(taken_ms(&throttle, io, 100 * RATE, &cancelled), 0);
    pb_clean_throttle none = {0};
    CHECK_INT(taken_ms(&none, io, 100 * RATE, &cancelled), 0);
    io->ops->close(io);
}

CHECK_MAIN()
