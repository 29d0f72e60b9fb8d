"""The command line that our client programs share: `produce` lines of a file, `consume` as a group member.

An input line is `key:value`. Output is one line `partition offset value` per record, flushed at once, until SIGTERM;
then the member commits what it wrote and leaves its group.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# A rebalance is learnt by heartbeat: the default of 3 s would make each join and leave of a test that slow.
HEARTBEAT_INTERVAL_MS = 300
SESSION_TIMEOUT_MS = 30_000
LINGER_MS = 5


def parse(description: str | None) -> argparse.Namespace:
    """The options: command, bootstrap, topic, and codec/acks/idempotent/input or group."""
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    produce, consume = commands.add_parser("produce"), commands.add_parser("consume")
    for command in (produce, consume):
        command.add_argument("--bootstrap", required=True)
        command.add_argument("--topic", required=True)
    produce.add_argument("--codec", choices=["none", "gzip", "snappy", "lz4", "zstd"], required=True)
    produce.add_argument("--acks", choices=["0", "1", "all"], required=True)
    produce.add_argument("--idempotent", action="store_true")
    produce.add_argument("--input", type=Path, required=True)
    consume.add_argument("--group", required=True)
    return parser.parse_args()


def records(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each input line."""
    for line in path.read_bytes().splitlines():
        key, _, value = line.partition(b":")
        yield key, value


def emit(partition: int, offset: int, value: bytes) -> None:
    """Print a consumed record."""
    sys.stdout.buffer.write(b"%d %d %s\n" % (partition, offset, value))
    sys.stdout.buffer.flush()


class Termination:
    """True once SIGTERM or SIGINT came."""

    def __init__(self) -> None:
        """Catch both signals."""
        self._came = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self._came = True

    def __bool__(self) -> bool:
        return self._came
