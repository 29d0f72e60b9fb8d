"""Logs and clients share the descriptors that the process may have, also after the limit was changed."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pytest

from pybroker.native.bindings import lib
from pybroker.native.descriptors import LogDescriptors, log_descriptors, share_descriptors

SetLimit = Callable[[int], None]


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetLimit]:
    """Let RLIMIT_NOFILE seem to be that."""
    lib.pb_process_limit_descriptors(0, 0, 0)  # a broker of another test may have run in this process
    yield lambda limit: monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    lib.pb_process_limit_descriptors(0, 0, 0)


def test_nothing_is_bounded_before_it_is_shared(set_limit: SetLimit) -> None:
    set_limit(256)
    assert log_descriptors() is None


def test_clients_keep_a_share(set_limit: SetLimit) -> None:
    for limit in (16, 64, 256, 1024, 4096, 1_048_576):
        set_limit(limit)
        share_descriptors()
        room = log_descriptors()
        assert room is not None
        assert room.limit == limit
        assert limit // 5 < room.log_count <= limit * 7 // 8
    set_limit(256)
    assert log_descriptors() == LogDescriptors(256, 140)


def test_a_limit_that_is_raised_counts_at_once(set_limit: SetLimit) -> None:
    set_limit(256)
    share_descriptors()
    set_limit(512)
    room = log_descriptors()
    assert room is not None
    assert (room.limit, room.log_count > 140) == (512, True)


def test_without_a_limit_there_is_room_for_a_billion(set_limit: SetLimit) -> None:
    set_limit(resource.RLIM_INFINITY)
    share_descriptors()
    room = log_descriptors()
    assert room is not None
    assert room.log_count > 10**9
