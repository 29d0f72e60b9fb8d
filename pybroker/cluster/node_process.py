"""A process that outlives who started it: known by its id and the time of its start, signalled through a pidfd.

Any thread. A process id that belongs to another process by now counts as ended. Fails with `ClusterError` for a process
of another user.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pybroker.cluster.errors import ClusterError
from pybroker.cluster.layout import ProcessName

_POLL_SECONDS = 0.01
_ENDED = "ZXx"
_STOPPED = "Tt"
_STATE_FIELD, _THREADS_FIELD, _START_FIELD = 0, 17, 19


class NodeProcess:
    """One process. `exit_status`, of a child of this process that has ended, as of `subprocess`; else None."""

    def __init__(self, name: ProcessName) -> None:
        self.name = name
        self.exit_status: int | None = None

    @classmethod
    def start(cls, command: Sequence[str], output_path: Path, env: Mapping[str, str]) -> NodeProcess:
        """Start `command` in a session of its own, its output added to the file, `env` to this environment."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawnp(
            command[0],
            list(command),
            {**os.environ, **env},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(output_path), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # A shell has what it starts in the background ignore SIGINT, which all children would inherit.
            setsigdef=[signal.SIGINT],
        )
        found = _stat(pid)
        assert found is not None, "a child that nobody has waited for is there, if only as a zombie"
        return cls(ProcessName(pid, found[1]))

    def state(self) -> str:
        """`running`, `paused` or `ended`."""
        found = _stat(self.name.pid)
        self._reap()  # after the look: who had ended then is gone now, if it is a child
        if found is None or found[1] != self.name.start_ticks or found[0] in _ENDED:
            return "ended"
        return "paused" if found[0] in _STOPPED else "running"

    def signal(self, number: signal.Signals) -> bool:
        """Send it; False when the process has ended."""
        try:
            descriptor = os.pidfd_open(self.name.pid)
        except ProcessLookupError:
            return False
        try:
            if self.state() == "ended":
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise ClusterError(f"process {self.name.pid} belongs to another user") from None
        finally:
            os.close(descriptor)
        return True

    def wait(self, timeout_seconds: float) -> bool:
        """Whether it ends in that time."""
        deadline = time.monotonic() + timeout_seconds
        while self.state() != "ended":
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _reap(self) -> None:
        if self.exit_status is not None:
            return
        try:
            pid, status = os.waitpid(self.name.pid, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            self.exit_status = os.waitstatus_to_exitcode(status)


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time in ticks of a process; None when there is none.

    A first thread that has ended while others go on, as a JVM's does, makes no zombie of the process yet.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state = fields[_STATE_FIELD]
    if state in _ENDED and int(fields[_THREADS_FIELD]) > 1:
        state = "R"
    return state, int(fields[_START_FIELD])
