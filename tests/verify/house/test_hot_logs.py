"""Hot logs of real brokers under what may happen to them: everything a log lives through at random, hundreds of logs
that take turns with few rings, and rings that something removes under the running broker.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.native.errors import NativeError
from pybroker.native.rings import read_ring
from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, PACED, EngineTurns
from tests.harness.crash.log_steps import OVERRIDES, LogSteps
from tests.harness.crash.record_load import Ledger, Place, RecordCheck, RecordLoad

TIMEOUT_S = 60
LOST = re.compile(r"(\d+) tail rings in \S+ were removed or replaced(?:.*\(and (\d+) more like it\))?")


@pytest.fixture
def turns() -> Iterator[EngineTurns]:
    made = EngineTurns([DIRECT])
    yield made
    made.close()


@pytest.mark.parametrize("durability", ["none", "acks"])
@pytest.mark.parametrize("engines", [(DIRECT,), (DIRECT, PACED)], ids="-".join)
def test_a_log_stays_what_it_was_over_kills_and_engines(
    tmp_path: Path, engines: tuple[str, ...], backend: str, durability: str
) -> None:
    lives = EngineTurns(engines)
    settings = {**OVERRIDES, "pybroker.io.backend": backend, "pybroker.durability": durability}
    try:
        with BrokerProcess(tmp_path / "data", overrides={**settings, **lives.overrides(0)}) as broker:
            steps = LogSteps(broker, lives, seed=len(engines) + 2 * len(durability))
            for life in range(10):
                steps.live(300, kill=life % 4 != 3)
            steps.close()
    finally:
        lives.close()


def test_hundreds_of_logs_take_turns_with_three_rings(tmp_path: Path, turns: EngineTurns) -> None:
    overrides = {**turns.overrides(0), "pybroker.tail.ring.budget.bytes": str(96 << 20)}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        config = {"segment.bytes": str(1 << 20)}
        admin.create_topics([NewTopic("t", 300, 1, config=config)])["t"].result(TIMEOUT_S)
        places = [("t", index) for index in range(300)]
        ledger, choice = Ledger(), random.Random(300)
        for turn in range(6):
            # Four seconds: then those of the turn before have been idle for long enough to lose their rings.
            busy = choice.sample(places, 5)
            load = RecordLoad(broker.bootstrap, busy, 2, 1500, ledger=ledger, first_number=2 * turn)
            some = RecordLoad(broker.bootstrap, places, 1, 300, ledger=ledger, first_number=100 + turn)
            load.start()
            some.start()
            time.sleep(4)
            broker.kill()
            acknowledged = ledger.counts()
            broker.start()
            load.stop()
            some.stop()
            RecordCheck(broker.bootstrap, places, ledger).run(acknowledged, whole=True)
        assert not ledger.failures, ledger.failures[:5]
        assert broker.stop() == 0


def lost_count(broker: BrokerProcess) -> int:
    """How many rings the broker has seen to be gone."""
    found = LOST.findall(broker.output_path.read_text())
    return sum(int(count) * (1 + int(more or 0)) for count, more in found)


def logs_with_rings(directory: Path) -> set[Place]:
    """Those that are written through a ring now."""
    found = set()
    for path in directory.rglob("*.ring"):
        try:
            ring = read_ring(path)
        except NativeError:
            continue  # is being made, or was replaced by us
        if ring.is_sealed:
            found.add((ring.topic, ring.partition))
    return found


def wait_until(count: Callable[[], int], wanted: int, otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while count() < wanted:
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def remove_files(directory: Path) -> None:
    for path in directory.rglob("*.ring"):
        path.unlink()


def remove_all(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path)


def replace_files(directory: Path) -> None:
    for path in directory.rglob("*.ring"):
        size_bytes = path.stat().st_size
        path.unlink()
        path.write_bytes(random.Random(1).randbytes(size_bytes))


@pytest.mark.parametrize("spoil", [remove_files, remove_all, replace_files])
def test_what_is_acknowledged_after_rings_are_seen_to_be_gone_outlives_a_kill(
    tmp_path: Path, turns: EngineTurns, spoil: Callable[[Path], None]
) -> None:
    places = [("t", 0), ("u", 0)]
    with BrokerProcess(tmp_path / "data", overrides=turns.overrides(0)) as broker:
        load = RecordLoad(broker.bootstrap, places, producer_count=2)
        load.start()
        try:
            load.wait_for_progress(TIMEOUT_S, count=500)
            for _ in range(2):
                # Each log is looked after by itself: all have to have a ring, and all have to miss it.
                wait_until(
                    lambda: len(list(turns.directory.rglob("*.ring"))), len(places), "there is a log without ring"
                )
                before = lost_count(broker)
                spoil(turns.directory)
                wait_until(lambda: lost_count(broker), before + len(places), "nobody has seen it")
                load.wait_for_progress(TIMEOUT_S, count=300)
                acknowledged = load.ledger.counts()
                broker.kill()
                broker.start()
                RecordCheck(broker.bootstrap, places, load.ledger).run(acknowledged, whole=True)
                load.wait_for_progress(TIMEOUT_S, count=500)
        finally:
            load.stop()
        assert not load.ledger.failures, load.ledger.failures[:5]
        assert broker.stop() == 0
