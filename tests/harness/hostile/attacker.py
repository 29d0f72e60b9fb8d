"""A process that plays attacks on a broker, some at a time, and says in JSON how the broker took them.

    python -m tests.harness.hostile.attacker PORT --seed 7 --first 0 --step 2 --seconds 20

Of the sweep of a seed it plays attacks `first`, `first + step` and so on until the time is up, and says as `next` where
it has stopped. After the last attack it begins again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.hostile.frames import Attack, Planned, sweep

ANSWERED, CLOSED, SILENT = "answered", "closed", "silent"
#: Nothing that is asked here may take a broker longer, however busy others keep it.
_PATIENCE_SECONDS = 60.0
_CONNECTIONS = 4
_UNREAD_SECONDS = 0.5


def served_apis(port: int) -> dict[int, tuple[int, int]]:
    """Oldest and newest version of each API, as the broker says."""
    with ProtocolClient(port) as client:
        answer = client.call(m.ApiVersionsRequest(client_software_name="hostile", client_software_version="1"), 3)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _answer(connection: socket.socket) -> None:
    """Read one whole answer. ConnectionError when there is none."""
    left, head = 4, b""
    while left > 0:
        data = connection.recv(min(left, 1 << 20))
        if not data:
            raise ConnectionError
        left -= len(data)
        if len(head) < 4:
            head += data
            if len(head) == 4:
                (left,) = struct.unpack(">i", head)


def play(port: int, attack: Attack) -> str:
    """How the broker took it: `ANSWERED`, `CLOSED`, or `SILENT` when it did neither in a minute."""
    with socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS) as connection:
        try:
            if not attack.reads:
                connection.settimeout(_UNREAD_SECONDS)
            for pause_seconds, piece in attack.pieces:
                time.sleep(pause_seconds)
                connection.sendall(piece)
            if not attack.reads:
                time.sleep(_UNREAD_SECONDS)
                return ANSWERED
            for _ in range(attack.answers):
                _answer(connection)
        except ConnectionError:
            return CLOSED
        except TimeoutError:
            return SILENT if attack.reads else ANSWERED
    return ANSWERED


class Attacker:
    """Plays a share of a sweep on several connections until `end`, by the monotonic clock."""

    def __init__(self, port: int, planned: list[Planned], numbers: Iterator[int], end: float) -> None:
        self._port, self._planned, self._numbers, self._end = port, planned, numbers, end
        self._lock = threading.Lock()
        self.next_number = -1
        self.outcomes: Counter[str] = Counter()
        self.silent: list[str] = []
        self.unreachable: list[str] = []

    def run(self) -> None:
        """Play on all connections; returns when all attacks that were begun have ended."""
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            for each in [pool.submit(self._play_some) for _ in range(_CONNECTIONS)]:
                each.result()

    def _play_some(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers)
                if time.monotonic() >= self._end:
                    self.next_number = number if self.next_number < 0 else min(self.next_number, number)
                    return
            name, make = self._planned[number % len(self._planned)]
            try:
                outcome = play(self._port, make())
            except OSError as error:
                with self._lock:
                    self.unreachable.append(f"{name}: {error}")
                continue
            with self._lock:
                self.outcomes[outcome] += 1
                if outcome == SILENT:
                    self.silent.append(name)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    wanted = parser.parse_args()
    end = time.monotonic() + wanted.seconds
    planned = sweep(served_apis(wanted.port), wanted.seed)
    attacker = Attacker(wanted.port, planned, itertools.count(wanted.first, wanted.step), end)
    attacker.run()
    print(
        json.dumps(
            {
                "next": attacker.next_number,
                "planned": len(planned),
                "outcomes": attacker.outcomes,
                "silent": attacker.silent,
                "unreachable": attacker.unreachable,
            }
        )
    )


if __name__ == "__main__":
    main()
