"""Which fetchers there are, and where they fetch from."""

from __future__ import annotations

import pytest
from registrations import LISTENER, broker, image

from pybroker.config.broker import BrokerConfig
from pybroker.native.fetcher import FetcherOptions, FetcherStats
from pybroker.replication.fetcher_manager import ReplicaFetcherManager, Source

NODE_ID = 1


class Fetcher:
    def __init__(self, options: FetcherOptions) -> None:
        self.options = options
        self.is_open = True

    @property
    def stats(self) -> FetcherStats:
        assert self.is_open
        return FetcherStats(1, 2, 3, 4, 5, 6, 7, 8, 1)

    def close(self) -> None:
        assert self.is_open
        self.is_open = False


class Setup:
    def __init__(self, *overrides: str, listener: str = LISTENER) -> None:
        self.opened: list[Fetcher] = []
        config = BrokerConfig.load(None, overrides)
        self.fetchers = ReplicaFetcherManager(NODE_ID, listener, lambda: config, self._open)
        self.fetchers.on_image(image())

    def _open(self, options: FetcherOptions) -> Fetcher:
        self.opened.append(Fetcher(options))
        return self.opened[-1]


def test_one_for_each_leader_is_shared_and_closed_when_idle() -> None:
    made = Setup("replica.fetch.wait.max.ms=17", "replica.fetch.max.bytes=1234")
    source = made.fetchers.source(2, ("t", 0))
    assert source == Source(2, 0, "host2", 9092, 100, 17) == made.fetchers.source(2, ("u", 7))
    assert source is not None
    fetcher = made.fetchers.acquire(source)
    assert made.fetchers.acquire(source) is fetcher
    assert [each.options for each in made.opened] == [
        FetcherOptions(2, "host2", 9092, NODE_ID, 100, 17, 17, 1, 2 << 20, 1234, 1000, 30_000, "broker-1-fetcher-0")
    ]
    made.fetchers.close_idle()
    made.fetchers.release(source)
    made.fetchers.close_idle()
    assert made.opened[0].is_open
    made.fetchers.release(source)
    made.fetchers.close_idle()
    assert not made.opened[0].is_open
    assert made.fetchers.sources == ()
    assert made.fetchers.acquire(source) is made.opened[1]


@pytest.mark.parametrize("max_bytes", [0, 4096, 2 << 20, 100 << 20])
def test_a_response_is_as_large_as_it_is_set_to_be(max_bytes: int) -> None:
    made = Setup(f"replica.fetch.response.max.bytes={max_bytes}", f"replica.fetch.max.bytes={max_bytes}")
    source = made.fetchers.source(2, ("t", 0))
    assert source is not None
    made.fetchers.acquire(source)
    options = made.opened[0].options
    assert options.max_bytes == options.partition_max_bytes == max(max_bytes, 1)


def test_partitions_are_spread_over_the_fetchers_of_a_leader() -> None:
    made = Setup("num.replica.fetchers=3")
    numbers = [source.number for index in range(6) if (source := made.fetchers.source(2, ("t", index))) is not None]
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]


def test_the_address_and_both_registrations_make_the_source() -> None:
    made = Setup()
    key = ("t", 0)
    before = made.fetchers.source(2, key)
    made.fetchers.on_image(image(broker(1), broker(2, port=9)))
    assert made.fetchers.source(2, key) == Source(2, 0, "host2", 9, 100, 17)
    made.fetchers.on_image(image(broker(1, epoch=101), broker(2)))
    assert made.fetchers.source(2, key) == Source(2, 0, "host2", 9092, 101, 17)
    made.fetchers.on_image(image())
    assert made.fetchers.source(2, key) == before
    made.fetchers.on_image(image(level=26))
    assert made.fetchers.source(2, key) == before
    made.fetchers.on_image(image(level=27))
    assert made.fetchers.source(2, key) == Source(2, 0, "host2", 9092, 100, 18)


def test_who_cannot_be_reached_is_no_source(caplog: pytest.LogCaptureFixture) -> None:
    made = Setup()
    assert made.fetchers.source(-1, ("t", 0)) is None
    assert made.fetchers.source(4, ("t", 0)) is None
    made.fetchers.on_image(image(broker(1), broker(2, fenced=True)))
    assert made.fetchers.source(2, ("t", 0)) is None
    made.fetchers.on_image(image(broker(2)))
    assert made.fetchers.source(2, ("t", 0)) is None, "this broker is not registered yet"
    assert caplog.records == []
    assert Setup(listener="INTERNAL").fetchers.source(2, ("t", 0)) is None
    assert "no listener INTERNAL" in caplog.text


def test_what_closed_ones_have_fetched_counts() -> None:
    made = Setup()
    first, second = made.fetchers.source(2, ("t", 0)), made.fetchers.source(3, ("t", 0))
    assert first is not None
    assert second is not None
    made.fetchers.acquire(first)
    made.fetchers.release(first)
    made.fetchers.close_idle()
    made.fetchers.acquire(second)
    assert made.fetchers.stats() == FetcherStats(2, 4, 6, 8, 10, 12, 14, 8, 1)
