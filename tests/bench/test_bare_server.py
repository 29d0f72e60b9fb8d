"""The server that figures are held against: what it answers is what the load generator takes for a broker's answer."""

from __future__ import annotations

from bench.peers.machine import BareServer
from pybroker.perf.generator import find_generator


def test_it_takes_batches_and_keeps_none() -> None:
    with BareServer(find_generator()) as bare:
        found = bare.load("produce", "--topic", "t", "--batch-bytes", "16k", "--in-flight", "5", "--bytes", "16m")
    assert found.load["payload_bytes"] >= 15 << 20
