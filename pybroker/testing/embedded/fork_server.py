"""`python -m pybroker.testing.embedded.fork_server FD PARENT`: a process that has imported the broker and forks one
whenever it is asked, which takes a fraction of what a fresh interpreter needs.

One thread. FD is one end of `wire.pair()`; PARENT the process at the other end. Requests and their answers:

    {"do": "start", "properties": {...}, "ahead_ms": ..., "output": PATH}     -> {"pid": ...}
    {"do": "end", "pid": ..., "signal": ..., "timeout_seconds": ...}          -> {"status": ...}

The first comes with the broker's end of its control socket.

When the parent ends, however it ends, or closes its end, the brokers are killed and their files removed. Brokers end
with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path

from pybroker.testing.embedded import child, storage, wire

_PR_SET_PDEATHSIG = 1
_FAILED = 70


class ForkServer:
    """Forks brokers, and is their parent."""

    def __init__(self, control: socket.socket, parent_pid: int) -> None:
        self._control = control
        self._root = storage.make_root()
        self._children: set[int] = set()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._parent = os.pidfd_open(parent_pid)
        if os.getppid() != parent_pid:
            raise ProcessLookupError(f"process {parent_pid}, which wants brokers, is gone")

    def run(self) -> None:
        """Serve until the parent is gone."""
        try:
            wire.send(self._control, {"root": str(self._root)})
            storage.sweep()
            while self._wait(self._control.fileno(), None):
                received = wire.receive(self._control)
                if received is None:
                    return
                request, descriptors = received
                wire.send(self._control, self._answer(request, descriptors))
        finally:
            self._end_all()
            shutil.rmtree(self._root, ignore_errors=True)

    def _answer(self, request: wire.Message, descriptors: list[int]) -> wire.Message:
        if request["do"] == "start":
            try:
                return {"pid": self._fork(request, descriptors[0])}
            finally:
                os.close(descriptors[0])
        return {"status": self._end(request["pid"], request["signal"], request["timeout_seconds"])}

    def _fork(self, request: wire.Message, control: int) -> int:
        server_pid = os.getpid()
        pid = os.fork()
        if pid != 0:
            self._children.add(pid)
            return pid
        status = _FAILED
        try:
            # Killed with the server. It may be gone already.
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != server_pid:
                os._exit(_FAILED)
            self._control.close()
            os.close(self._parent)
            _redirect(Path(request["output"]))
            status = child.serve(request["properties"], request["ahead_ms"], socket.socket(fileno=os.dup(control)))
        except BaseException:  # noqa: BLE001 - nothing above may run twice
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _wait(self, descriptor: int, timeout_ms: int | None) -> bool:
        """Whether there is something at `descriptor`; False when time or the parent has ended."""
        waiting = select.poll()
        for each in (descriptor, self._parent):
            waiting.register(each, select.POLLIN)
        found = {each for each, _ in waiting.poll(timeout_ms)}
        return descriptor in found and self._parent not in found

    def _end(self, pid: int, number: int, timeout_seconds: float) -> int:
        """The exit status of a broker that gets this signal, and SIGKILL if it goes on for so long; -N for signal N."""
        process = os.pidfd_open(pid)
        try:
            os.kill(pid, number)
            if not self._wait(process, int(timeout_seconds * 1000)):
                os.kill(pid, signal.SIGKILL)
        finally:
            os.close(process)
        self._children.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


def _redirect(output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for each in (1, 2):
        os.dup2(descriptor, each)
    os.close(descriptor)


def main() -> None:
    """Serve whoever is at the other end."""
    child.warm_up()
    # Brokers share these objects' pages: a collection in one would copy them.
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    # The parent is gone before it was answered; or somebody ends this by hand. Either way the brokers have ended.
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        ForkServer(control, int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
