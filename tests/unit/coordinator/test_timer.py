"""The timer queue against a plain dictionary."""

from __future__ import annotations

import random

from pybroker.coordinator.timer import TimerQueue


def test_random_operations_against_a_dictionary() -> None:
    rng = random.Random(42)
    queue = TimerQueue()
    model: dict[tuple[int], int] = {}
    now_ms = 0
    for step in range(20_000):
        key = (rng.randrange(50),)
        action = rng.random()
        if action < 0.6:
            deadline_ms = now_ms + rng.randrange(1, 300)
            queue.schedule(key, deadline_ms, step)
            model[key] = deadline_ms
        elif action < 0.8:
            queue.cancel(key)
            model.pop(key, None)
        else:
            now_ms += rng.randrange(0, 40)
            expired = set()
            while (popped := queue.pop_expired(now_ms)) is not None:
                expired.add(popped[0])
            assert expired == {found for found, deadline_ms in model.items() if deadline_ms <= now_ms}
            for found in expired:
                del model[found]
        assert len(queue) == len(model)
        if model:
            assert queue.earliest_ms is not None
            assert queue.earliest_ms <= min(model.values())


def test_earliest_first_and_one_at_a_time() -> None:
    queue = TimerQueue()
    for deadline_ms in (30, 10, 20):
        queue.schedule((deadline_ms,), deadline_ms, str(deadline_ms))
    assert queue.pop_expired(100) == ((10,), "10")
    assert queue.pop_expired(100) == ((20,), "20")
    assert queue.pop_expired(29) is None
    assert queue.pop_expired(100) == ((30,), "30")
    assert queue.pop_expired(100) is None
    assert queue.earliest_ms is None


def test_what_has_expired_can_be_cancelled_until_it_is_taken_out() -> None:
    queue = TimerQueue()
    for deadline_ms in (10, 20, 30):
        queue.schedule((deadline_ms,), deadline_ms)
    assert queue.pop_expired(100) == ((10,), None)
    queue.cancel((20,))
    queue.schedule((30,), 200)
    assert queue.pop_expired(100) is None
    assert queue.pop_expired(200) == ((30,), None)


def test_heartbeats_do_not_grow_the_heap() -> None:
    queue = TimerQueue()
    for round_number in range(100):
        for member in range(1_000):
            queue.schedule((member,), 10_000 + round_number)
    assert len(queue._heap) == 1_000


def test_cancelled_entries_are_dropped() -> None:
    queue = TimerQueue()
    for number in range(10_000):
        queue.schedule((number,), 10**9)
        queue.cancel((number,))
    assert len(queue._heap) < 200
