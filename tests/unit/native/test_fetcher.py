"""Following a leader, over the real data plane: two brokers of one process."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.native.broker import EVENT_APPENDED, EVENT_CAUGHT_UP, EVENT_FOLLOWER, BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.fetcher import (
    FOLLOWER_CHECKPOINT,
    FOLLOWER_CUT,
    FOLLOWER_FETCHING,
    FOLLOWER_IDLE,
    FetcherOptions,
    NativeFetcher,
    partition_followings,
)
from pybroker.native.partition import DURABILITY_ACKS, NativePartition, PartitionConfig
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from tests.harness.waiting import until
from tests.unit.native.test_wrapper import CONFIG, wait_for_appends

TOPIC_ID = bytes(range(16))


class Pair:
    """A leader and a follower with their partition 0 of `t`."""

    def __init__(self, directory: Path, config: PartitionConfig) -> None:
        self.directory, self.config = directory, config
        self.leader, self.port = self._start(1, "epoll")
        self.follower, _ = self._start(2, "auto")
        self.led = self.open(self.leader, "leader")
        self._epoch = 0
        #: By the follower: news, tag and offset.
        self.told: list[tuple[int, int, int]] = []
        self.lead()
        self.copy = self.open(self.follower, "follower")
        self.fetcher = NativeFetcher(self.follower, self.options())

    def _start(self, node_id: int, backend: str) -> tuple[NativeBroker, int]:
        broker = NativeBroker(BrokerOptions(backend, node_id, 1, 0, 16 << 20, 16 << 20, 100, 60_000, 10, 16 << 20))
        broker.serve_apis([(1, 4, 18)])
        port = broker.listen("PLAINTEXT", "127.0.0.1", 0)
        broker.start()
        return broker, port

    def options(self) -> FetcherOptions:
        return FetcherOptions(1, "127.0.0.1", self.port, 2, 7, 17, 100, 1, 10 << 20, 1 << 20, 20, 30_000, "test")

    def open(self, broker: NativeBroker, name: str) -> NativePartition:
        return NativePartition(
            broker,
            "t",
            TOPIC_ID,
            0,
            str(self.directory / name / "t-0"),
            self.config,
            leader_epoch=0,
            clean=False,
            recovery_point=0,
            log_start_offset=-1,
            tag=9,
        )

    def append(self, *values: bytes) -> None:
        for value in values:
            self.led.append(record_batch.build(0, 0, [Record(None, value)], timestamp_ms=1), 1)
        missing = len(values)
        while missing > 0:
            assert select.select([self.leader.event_fd], [], [], 60)[0], "no event came"
            for event in self.leader.take_events():
                missing -= event[0] == EVENT_APPENDED
                if event[0] == EVENT_CAUGHT_UP:
                    self.lead()  # so that nobody waits for a follower that is told of and may have gone

    def lead(self, epoch: int = 0) -> None:
        """Lead in that epoch, or again in this one, with a follower that is not in sync."""
        self._epoch = max(epoch, self._epoch)
        self.led.lead_replicated(self._epoch, 0, [1, 2], [1])

    def wait_for_copy(self) -> None:
        """All that the leader has, and its high watermark, has come over."""
        ends = self.led.state.log_end_offset

        def has_come() -> bool:
            self.hear()
            state = self.copy.state
            return state.log_end_offset == ends and state.high_watermark >= ends

        until(has_come)
        self.hear()

    def hear(self) -> None:
        """Note what the follower tells, and follow again when that is what it waits for."""
        for event in self.follower.take_events():
            if event[0] == EVENT_FOLLOWER:
                self.told.append((event[1], event[2], event[3]))
                if event[1] == FOLLOWER_CHECKPOINT:
                    self.copy.follow(self.fetcher, self._epoch)

    def close(self) -> None:
        self.fetcher.close()
        for broker, partition in ((self.follower, self.copy), (self.leader, self.led)):
            partition.resign(6)
            broker.stop()
            partition.close(clean=True)
            broker.close()


@pytest.fixture(params=["plain", "durable"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    for name in ("leader", "follower"):
        (tmp_path / name).mkdir()
    durability = DURABILITY_ACKS if request.param == "durable" else 0
    made = Pair(tmp_path, CONFIG.replace(durability=durability))
    yield made
    made.close()


def log_bytes(pair: Pair, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((pair.directory / name / "t-0").glob("*.log")))


def test_a_follower_gets_what_its_leader_has_and_goes_on(pair: Pair) -> None:
    pair.append(b"one", b"two")
    pair.copy.follow(pair.fetcher, 0)
    pair.wait_for_copy()
    pair.append(*(b"%d" % i for i in range(50)), b"x" * 500_000)
    pair.wait_for_copy()
    assert pair.copy.state.log_end_offset == 53
    assert log_bytes(pair, "follower") == log_bytes(pair, "leader")
    until(lambda: partition_followings([pair.copy])[0] == (0, 0, FOLLOWER_FETCHING))
    stats = pair.fetcher.stats
    assert (stats.partitions, stats.connected, stats.batches, stats.records) == (1, 1, 53, 53)


def test_after_unfollow_nothing_more_is_appended(pair: Pair) -> None:
    pair.copy.follow(pair.fetcher, 0)
    pair.append(b"one")
    pair.wait_for_copy()
    pair.copy.unfollow()
    assert partition_followings([pair.copy])[0] == (-1, -1, FOLLOWER_IDLE)
    pair.append(b"two")
    pair.copy.follow(pair.fetcher, 0)
    pair.wait_for_copy()
    assert pair.copy.state.log_end_offset == 2


def test_a_leader_that_becomes_a_follower_is_cut_where_it_differs(pair: Pair) -> None:
    pair.append(b"common")
    pair.copy.follow(pair.fetcher, 0)
    pair.wait_for_copy()
    pair.copy.lead(1)  # what it writes in this epoch, nobody else has
    for value in (b"lost", b"lost too"):
        pair.copy.append(record_batch.build(0, 0, [Record(None, value)], timestamp_ms=1), 1)
    wait_for_appends(pair.follower, 2)
    pair.lead(2)
    pair.append(b"kept")
    pair.copy.follow(pair.fetcher, 2)
    pair.wait_for_copy()
    assert log_bytes(pair, "follower") == log_bytes(pair, "leader")
    assert pair.copy.epoch_end(1) == pair.led.epoch_end(1)
    assert pair.told[0] == (FOLLOWER_CUT, 9, 1), "it was cut below the high watermark that it had as a leader"
    assert pair.told[1:] == [(FOLLOWER_CHECKPOINT, 9, 1)]


def test_options_that_make_no_sense_are_refused(pair: Pair) -> None:
    for wrong in ({"host": ""}, {"fetch_version": 16}, {"max_bytes": 0}, {"host": "x" * 300}, {"port": 70000}):
        with pytest.raises(NativeError) as failure:
            NativeFetcher(pair.follower, pair.options().replace(**wrong))
        assert failure.value.text
