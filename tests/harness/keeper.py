"""A process that ends and undoes what this one has left when it is gone, also after SIGKILL.

`processes` that it is told of get SIGTERM, so that brokers remove their tail rings, and SIGKILL a while later. Then the
commands that undo something (unmount, remove a control group) run, the last one first. It is started when it is first
told something, and ends with the pipe that it reads from. Any thread. Files in /tmp stay: they say what went wrong.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from itertools import count

_TERM_SECONDS = 10.0
_UNDO_SECONDS = 10.0
_RETRY_SECONDS = 0.1

_lock = threading.Lock()
_numbers = count()
_keeper: subprocess.Popen[bytes] | None = None
_owner = 0


def _tell(message: dict[str, object]) -> None:
    global _keeper, _owner
    with _lock:
        if _keeper is None or _owner != os.getpid():  # a fork has the parent's pipe, and its own children
            _owner = os.getpid()
            # As a file and without site: it is ready before a broker is.
            command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
            _keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env={"PATH": _path()})
        assert _keeper.stdin is not None
        _keeper.stdin.write(json.dumps(message).encode() + b"\n")
        _keeper.stdin.flush()


def _close() -> None:
    with _lock:
        if _keeper is not None and _owner == os.getpid():
            assert _keeper.stdin is not None
            _keeper.stdin.close()
            _keeper.wait()


atexit.register(_close)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"


def keep_process(pid: int) -> None:
    """Have the process, and its process group where it leads one, end with this one."""
    _tell({"process": pid})


def keep(*undo: str | os.PathLike[str]) -> int:
    """Have this command run after the end of this process, unless `done` is called with the number before."""
    number = next(_numbers)
    _tell({"undo": [os.fspath(word) for word in undo], "number": number})
    return number


def done(number: int) -> None:
    """It was undone."""
    _tell({"done": number})


# ---- the process itself ----------------------------------------------------------------------------------------------


def _signal(processes: dict[int, int], number: signal.Signals) -> None:
    for descriptor, pid in processes.items():
        try:
            signal.pidfd_send_signal(descriptor, 0)  # as long as it is there its number is no other's
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
                os.killpg(pid, signal.SIGCONT)
            else:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def _living(processes: dict[int, int], seconds: float) -> dict[int, int]:
    """Those that have not ended after so many seconds."""
    deadline = time.monotonic() + seconds
    left = dict(processes)
    while left:
        ended, _, _ = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))
        if not ended:
            break
        for descriptor in ended:
            del left[descriptor]
            os.close(descriptor)
    return left


def _end(processes: dict[int, int]) -> None:
    _signal(processes, signal.SIGTERM)
    left = _living(processes, _TERM_SECONDS)
    _signal(left, signal.SIGKILL)
    _living(left, _TERM_SECONDS)


def _undo(command: list[str]) -> None:
    deadline = time.monotonic() + _UNDO_SECONDS
    quiet = subprocess.DEVNULL
    while subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False).returncode != 0:
        if time.monotonic() > deadline:
            print(f"pybroker's tests have left something behind: {' '.join(command)} failed", file=sys.stderr)
            return
        time.sleep(_RETRY_SECONDS)


def main() -> None:
    """Wait for the end of the pipe."""
    processes: dict[int, int] = {}
    commands: dict[int, list[str]] = {}
    for line in sys.stdin:
        message = json.loads(line)
        if "process" in message:
            processes = _living(processes, 0.0)
            try:
                processes[os.pidfd_open(message["process"])] = message["process"]
            except ProcessLookupError:
                continue  # it has ended
        elif "undo" in message:
            commands[message["number"]] = message["undo"]
        else:
            commands.pop(message["done"], None)
    _end(processes)
    for command in reversed(commands.values()):
        _undo(command)


if __name__ == "__main__":
    main()
