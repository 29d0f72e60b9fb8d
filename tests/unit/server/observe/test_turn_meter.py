"""What the turns of a loop take, by clocks that the test moves, and of a real loop."""

from __future__ import annotations

import asyncio
import time

from pybroker.server.observe.turn_meter import LONG_TURN_NS, TurnMeter, meter_of, metered_loop

SECOND_NS = 1_000_000_000


def test_the_longest_turn_of_the_last_minutes() -> None:
    cpu_ns, now_ns = [0], [0]
    meter = TurnMeter(lambda: cpu_ns[0], lambda: now_ns[0])

    def turn(taken_ns: int) -> None:
        meter.begin()
        cpu_ns[0] += taken_ns
        meter.end()

    meter.end()
    assert meter.statistics() == (0.0, 0)
    for taken_ns in (1_000_000, 3_000_000, 2_000_000):
        turn(taken_ns)
    assert meter.statistics() == (0.003, 0)
    turn(LONG_TURN_NS)
    assert meter.statistics() == (0.02, 0)
    turn(LONG_TURN_NS + 1)
    assert meter.statistics().long_count == 1
    now_ns[0] += 61 * SECOND_NS
    turn(5_000_000)
    assert meter.statistics() == ((LONG_TURN_NS + 1) / SECOND_NS, 1), "the last window counts"
    now_ns[0] += 61 * SECOND_NS
    assert meter.statistics() == (0.005, 1)
    now_ns[0] += 200 * SECOND_NS
    assert meter.statistics() == (0.0, 1)


def test_a_metered_loop_counts_what_its_callbacks_take() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        until_ns = time.thread_time_ns() + LONG_TURN_NS + 1_000_000
        while time.thread_time_ns() < until_ns:
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # no CPU time

    with asyncio.Runner(loop_factory=metered_loop) as runner:
        meter = meter_of(runner.get_loop())
        assert meter is not None
        runner.run(work())
        found = meter.statistics()
        assert found.long_count == 1
        assert found.longest_s >= LONG_TURN_NS / SECOND_NS
    with asyncio.Runner() as plain:
        assert meter_of(plain.get_loop()) is None
