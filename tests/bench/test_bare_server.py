"""The server that figures are held against: what it answers is what the load generator takes for a broker's answer."""

from __future__ import annotations

import pytest

from bench.peers.machine import BareServer
from pybroker.perf.generator import find_generator

#: Of one pass over all that it has.
MOST_BYTES = 512 << 20


@pytest.mark.parametrize("max_bytes", ["1k", "64k", "1000000", "1g"])
def test_it_sends_whole_batches_again_and_again(max_bytes: str) -> None:
    # The generator checks that batches follow one another, and begins anew at the end.
    with BareServer(find_generator()) as bare:
        found = bare.load("fetch", "--topic", "t", "--connections", "2", "--max-bytes", max_bytes, "--bytes", "600m")
    assert found.load["payload_bytes"] > MOST_BYTES


def test_it_takes_batches_and_keeps_none() -> None:
    with BareServer(find_generator()) as bare:
        found = bare.load("produce", "--topic", "t", "--batch-bytes", "16k", "--in-flight", "5", "--bytes", "16m")
    assert found.load["payload_bytes"] >= 15 << 20
