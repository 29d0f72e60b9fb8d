"""Which fetchers there are, and where they fetch from."""

from __future__ import annotations

import asyncio
import errno

import pytest
from registrations import LISTENER, broker, cluster

from pybroker.config.broker import BrokerConfig
from pybroker.native.errors import NativeError
from pybroker.replication.data_plane import FetcherOptions
from pybroker.replication.fetcher_manager import ReplicaFetcherManager, Source

NODE_ID = 1


class Fetcher:
    def __init__(self, options: FetcherOptions) -> None:
        self.options = options
        self.failure: NativeError | None = None
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False
        if self.failure is not None:
            raise self.failure


class Setup:
    def __init__(self, *overrides: str, listener: str = LISTENER) -> None:
        self.opened: list[Fetcher] = []
        config = BrokerConfig.load(None, overrides)
        self.fetchers = ReplicaFetcherManager(NODE_ID, listener, lambda: config, self._open)
        self.fetchers.on_cluster(cluster())

    def _open(self, options: FetcherOptions) -> Fetcher:
        self.opened.append(Fetcher(options))
        return self.opened[-1]


def test_one_for_each_leader_is_shared_and_closed_when_idle() -> None:
    async def run() -> None:
        made = Setup("replica.fetch.wait.max.ms=17", "replica.fetch.max.bytes=1234")
        source = made.fetchers.source(2, ("t", 0))
        assert source == Source(2, 0, "host2", 9092, 100) == made.fetchers.source(2, ("u", 7))
        assert source is not None
        fetcher = made.fetchers.acquire(source)
        assert made.fetchers.acquire(source) is fetcher
        assert [each.options for each in made.opened] == [
            FetcherOptions(2, "host2", 9092, NODE_ID, 100, 17, 1, 10_485_760, 1234, 1000)
        ]
        await made.fetchers.close_idle()
        made.fetchers.release(source)
        await made.fetchers.close_idle()
        assert made.opened[0].is_open
        made.fetchers.release(source)
        await made.fetchers.close_idle()
        assert not made.opened[0].is_open
        assert made.fetchers.sources == ()
        assert made.fetchers.acquire(source) is made.opened[1]

    asyncio.run(run())


def test_partitions_are_spread_over_the_fetchers_of_a_leader() -> None:
    made = Setup("num.replica.fetchers=3")
    numbers = [source.number for index in range(6) if (source := made.fetchers.source(2, ("t", index))) is not None]
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]


def test_the_address_and_both_registrations_make_the_source() -> None:
    made = Setup()
    key = ("t", 0)
    before = made.fetchers.source(2, key)
    made.fetchers.on_cluster(cluster(broker(1), broker(2, port=9)))
    assert made.fetchers.source(2, key) == Source(2, 0, "host2", 9, 100)
    made.fetchers.on_cluster(cluster(broker(1, epoch=101), broker(2)))
    assert made.fetchers.source(2, key) == Source(2, 0, "host2", 9092, 101)
    made.fetchers.on_cluster(cluster())
    assert made.fetchers.source(2, key) == before


def test_who_cannot_be_reached_is_no_source(caplog: pytest.LogCaptureFixture) -> None:
    made = Setup()
    assert made.fetchers.source(-1, ("t", 0)) is None
    assert made.fetchers.source(4, ("t", 0)) is None
    made.fetchers.on_cluster(cluster(broker(1), broker(2, fenced=True)))
    assert made.fetchers.source(2, ("t", 0)) is None
    made.fetchers.on_cluster(cluster(broker(2)))
    assert made.fetchers.source(2, ("t", 0)) is None, "this broker is not registered yet"
    assert caplog.records == []
    assert Setup(listener="INTERNAL").fetchers.source(2, ("t", 0)) is None
    assert "no listener INTERNAL" in caplog.text


def test_one_that_cannot_be_closed_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        made = Setup()
        source = made.fetchers.source(3, ("t", 0))
        assert source is not None
        made.fetchers.acquire(source)
        made.opened[0].failure = NativeError(-errno.EIO)
        made.fetchers.release(source)
        await made.fetchers.close_idle()
        assert made.fetchers.sources == ()

    asyncio.run(run())
    assert "from broker 3 could not be closed" in caplog.text
