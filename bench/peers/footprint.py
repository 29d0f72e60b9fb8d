"""Measures the cost of pybroker at rest: time to the first record, memory, idle CPU.

These have absolute limits, so no Apache Kafka stands beside. `python -m bench.peers.footprint`; status 1 when one
fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.peers.adapters import pybroker
from bench.peers.peer import Peer, Site
from bench.peers.report import Row, text_table
from pybroker.perf import lifetime
from pybroker.perf.generator import find_generator

START_LIMIT_SECONDS = 0.5
IDLE_RSS_LIMIT_BYTES = 80e6
LOADED_RSS_LIMIT_BYTES = 120e6
IDLE_CPU_LIMIT = 0.01
IDLE_CONNECTIONS = 1000
IDLE_PARTITIONS = 1000


def _first_produce_seconds(pbload: Path, data: Path, backend: str) -> float:
    """From the start of the process to the answer to a first record, its topic created on the way."""
    start = time.monotonic()
    peer = pybroker.start(Site(pbload, data, False), backend=backend)
    try:
        peer.load("produce", "--topic", "first", "--bytes", "1")
        return time.monotonic() - start
    finally:
        peer.close()


def _mebibytes(text: str) -> int:
    """Bytes of the ready line's buffer budget, which is printed like `64MiB`."""
    if not text.endswith("MiB"):
        raise ValueError(f"the ready line says buffers={text}; it should be a number of MiB")
    return int(text.removesuffix("MiB")) << 20


def _loaded_rss_bytes(peer: Peer, seconds: float) -> float:
    """The highest RSS seen during large and during small produces."""
    highest = 0
    for shape in (("--batch-bytes", "256k", "--in-flight", "5"), ("--batch-bytes", "1k", "--connections", "16")):
        load = peer.load_beside("produce", "--topic", "rss", *shape, "--seconds", str(seconds))
        while load.running():
            highest = max(highest, peer.broker.rss_bytes())
            time.sleep(0.05)
        load.finish()
    return highest


def _idle_cpu(peer: Peer, seconds: float) -> float:
    """CPU per second of wall time with idle connections open and partitions led."""
    flags = ("--partitions", str(IDLE_PARTITIONS), "--bytes", "1")
    peer.load("produce", "--topic", "idle", *flags)
    words = peer.words(("idle", "--connections", str(IDLE_CONNECTIONS), "--seconds", str(seconds + 2)))
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=lifetime.environment())
    assert process.stderr is not None
    process.stderr.readline()  # all are open
    time.sleep(0.5)
    before, start = peer.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    share = (peer.cpu_seconds() - before) / (time.monotonic() - start)
    output, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"idle connections did not stay open: {output} {errors}")
    return share


def measure(backend: str, data: Path, seconds: float) -> list[Row]:
    """All rows; `theirs` is the limit itself."""
    pbload = find_generator()
    rows = []

    def add(name: str, metric: str, value: float, limit: float) -> None:
        rows.append(Row(f"{name} ({backend})", metric, value, limit, 1.0))

    starts = sorted(_first_produce_seconds(pbload, data, backend) for _ in range(3))
    add("start to first produce", "seconds", starts[1], START_LIMIT_SECONDS)
    peer = pybroker.start(Site(pbload, data, False), backend=backend)
    try:
        time.sleep(1)
        add("RSS, idle", "MB", peer.broker.rss_bytes() / 1e6, IDLE_RSS_LIMIT_BYTES / 1e6)
        add("CPU, idle", "core", _idle_cpu(peer, seconds), IDLE_CPU_LIMIT)
        limit = LOADED_RSS_LIMIT_BYTES + _mebibytes(peer.facts["buffers"])
        add("RSS, loaded", "MB", _loaded_rss_bytes(peer, seconds) / 1e6, limit / 1e6)
    finally:
        peer.close()
    return rows


def main() -> int:
    """Measure, print; see the module's text for the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    rows = measure(options.backend, options.data, options.seconds)
    print(text_table(rows, "pybroker", "limit"))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
