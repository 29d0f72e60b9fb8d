"""A child process whose output goes to a file: start, wait for a line, stop, count its memory and CPU.

Runs in the caller's thread; a test owns each object and closes it. Nothing here knows what the process is.
Can fail: `ProcessFailed` when the child ends or stays silent; the message carries the tail of its output.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pybroker.cluster.errors import ProcessFailed
from pybroker.cluster.ports import free_port
from tests.harness import keeper

__all__ = ["ChildProcess", "ProcessFailed", "cpu_seconds", "free_port"]

T = TypeVar("T")
_POLL_SECONDS = 0.01


def cpu_seconds(pid: int) -> float:
    """User and system time that a process used so far, in seconds, kernel threads of its own (io-wq) included and
    children it has not. FileNotFoundError when it has gone."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ChildProcess:
    """One child in a session of its own, its stdout and stderr in `output_path`. It ends with this process."""

    def __init__(
        self,
        command: Sequence[str],
        output_path: Path,
        env: Mapping[str, str] | None = None,
        errors_path: Path | None = None,
    ) -> None:
        """Start `command`. `env` is added to this process's environment; stderr goes to `errors_path` if given."""
        self.output_path = output_path
        self._command = list(command)
        self._scanned_position = output_path.stat().st_size if output_path.exists() else 0
        with open(output_path, "ab") as output, open(errors_path or output_path, "ab") as errors:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        keeper.keep_process(self._popen.pid)

    @property
    def pid(self) -> int:
        """The process id (also its process group)."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the child has not ended yet."""
        return self._popen.poll() is None

    def wait_for_line(self, match: Callable[[str], T | None], timeout_seconds: float) -> T:
        """The first non-None `match(line)` over the lines this child wrote; raises `ProcessFailed`."""
        deadline = time.monotonic() + timeout_seconds
        with open(self.output_path, "rb") as output:
            output.seek(self._scanned_position)
            pending = b""
            while True:
                ended = not self.running
                pending += output.read()
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    found = match(line.decode(errors="replace"))
                    if found is not None:
                        return found
                if ended:
                    raise ProcessFailed(f"{self.describe()} ended with status {self._popen.returncode}:\n{self.tail()}")
                if time.monotonic() > deadline:
                    raise ProcessFailed(f"{self.describe()} was not ready in {timeout_seconds} s:\n{self.tail()}")
                time.sleep(_POLL_SECONDS)

    def describe(self) -> str:
        """Process id and command, for messages."""
        return f"process {self.pid} ({' '.join(self._command)[-120:]})"

    def tail(self, lines_count: int = 30) -> str:
        """The last lines of the output."""
        return "\n".join(self.output_path.read_text(errors="replace").splitlines()[-lines_count:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the child still runs."""
        if self.running:
            self._popen.send_signal(number)

    def wait(self, timeout_seconds: float) -> int:
        """The exit status; raises `ProcessFailed` when the child does not end in time (it is killed then)."""
        try:
            return self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.describe()} did not end in {timeout_seconds} s:\n{self.tail()}") from None

    def stop(self, timeout_seconds: float = 60.0) -> int:
        """SIGTERM, then wait for the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_seconds)

    def kill(self) -> None:
        """SIGKILL and reap."""
        self.signal(signal.SIGKILL)
        self._popen.wait()

    def rss_bytes(self) -> int:
        """Resident memory of the child alone (not of children it has)."""
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """User and system time the child used so far (not that of children it has)."""
        return cpu_seconds(self.pid)
