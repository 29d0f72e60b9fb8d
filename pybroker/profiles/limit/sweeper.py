"""Deletes the topics of a run that ended without doing so: killed, or with its connection broken.

`Sweeper` starts `python -m pybroker.profiles.limit.sweeper HOST PORT` and tells it on a pipe which topics there are:
`+NAME`, and `-NAME` once it is deleted. When the pipe ends, which it does with the run however that ends, the process
deletes what is left and ends. It names topics that it cannot delete on standard error.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from types import TracebackType

from pybroker.profiles.limit.connection import Connection, RefusedError, expect
from pybroker.protocol import messages as m

_READY = "ready\n"
_TIMEOUT_MS = 30_000


def delete_topic(connection: Connection, name: str) -> None:
    """RefusedError, OSError."""
    wanted = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
    expect(connection.call(wanted, 6).responses[0].error_code, f"deleting the topic {name}")


class Sweeper(AbstractContextManager["Sweeper"]):
    """The run's end of the pipe."""

    def __init__(self, host: str, port: int) -> None:
        """Start the process, and wait until it listens: what it takes of a CPU is not measured."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a signal from the terminal is not for it
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def add(self, topic: str) -> None:
        """It is about to be made."""
        self._tell(f"+{topic}")

    def done(self, topic: str) -> None:
        """It is deleted."""
        self._tell(f"-{topic}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody ended it: the run deletes its topics itself
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _sweep(host: str, port: int, topics: list[str]) -> None:
    for topic in topics:
        try:
            with Connection(host, port) as connection:
                delete_topic(connection, topic)
        except (OSError, RefusedError) as error:
            print(
                f"pybroker: the topic {topic} stays on {host}:{port}: {error}. "
                f"`pybroker topics delete --bootstrap-server {host}:{port} --topic {topic}` deletes it",
                file=sys.stderr,
            )


def main() -> None:
    """Wait for the end of the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write(_READY)
    sys.stdout.flush()
    left: list[str] = []
    for line in sys.stdin:
        sign, topic = line[0], line[1:].strip()
        if sign == "+":
            left.append(topic)
        elif topic in left:
            left.remove(topic)
    _sweep(sys.argv[1], int(sys.argv[2]), left)


if __name__ == "__main__":
    main()
