"""`pybroker serve` as a child process, on a free loopback port with its own log dir.

A test owns each `BrokerProcess` and leaves it as a context manager; then the broker is stopped and, when the log dir
was made here, the dir is removed. Can fail: `ProcessFailed` with the tail of the broker's output.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.harness.process import ChildProcess, ProcessFailed, free_port

_READY_WORD = re.compile(r"\bready\b", re.IGNORECASE)
_PAIR = re.compile(r"""([A-Za-z_.][\w.]*)=("[^"]*"|'[^']*'|\S+)""")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class ReadyLine:
    """What the broker says when it serves: `fields` holds every `key=value` (or JSON member) of that line."""

    text: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def get(self, *names: str) -> str:
        """The first field present among `names`, or "unknown"."""
        return next((self.fields[name] for name in names if name in self.fields), "unknown")


def parse_ready_line(line: str) -> ReadyLine | None:
    """The ready line's fields, from JSON or `key=value` text; None for any other line."""
    text = _ANSI.sub("", line).strip()
    if not _READY_WORD.search(text):
        return None
    if text.startswith("{"):
        try:
            return ReadyLine(text, {key: str(value) for key, value in json.loads(text).items()})
        except json.JSONDecodeError:
            return None
    return ReadyLine(text, {key: value.strip("\"'") for key, value in _PAIR.findall(text)})


class BrokerProcess:
    """A running broker. `bootstrap` is its address; `ready` its ready line."""

    def __init__(
        self,
        log_dir: Path | None = None,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        command_prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        module: str = "pybroker",
        ready_timeout_seconds: float = 60.0,
    ) -> None:
        """Start a broker.

        `overrides` are server properties; `command_prefix` is put before the command (cgroup, taskset); `env` is added
        to the environment; `module` is what Python runs. Without `log_dir` a temporary one is used, and removed in the
        end.
        """
        self._temporary_dir = Path(tempfile.mkdtemp(prefix="pybroker-test-")) if log_dir is None else None
        self.log_dir = log_dir or Path(self._temporary_dir or "", "data")
        self.port = port if port is not None else free_port()
        self._overrides = dict(overrides or {})
        self._command_prefix = list(command_prefix)
        self._env = dict(env or {})
        self._module = module
        self._ready_timeout_seconds = ready_timeout_seconds
        self.output_path = self.log_dir.parent / f"{self.log_dir.name}.out"
        self._child: ChildProcess | None = None
        self.ready = self.start()

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ChildProcess:
        """The child; raises `ProcessFailed` when there is none."""
        if self._child is None:
            raise ProcessFailed("the broker is stopped")
        return self._child

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self.process.pid

    def start(self) -> ReadyLine:
        """Start (again) over the same dir and port; returns the ready line."""
        child = self._spawn()
        try:
            self.ready = child.wait_for_line(parse_ready_line, self._ready_timeout_seconds)
        except BaseException:
            child.kill()
            raise
        self._child = child
        return self.ready

    def start_and_kill(self, after_seconds: float) -> None:
        """Start, and SIGKILL without waiting for the ready line."""
        child = self._spawn()
        time.sleep(after_seconds)
        child.kill()

    def _spawn(self) -> ChildProcess:
        if self._child is not None:
            raise ProcessFailed(f"the broker already runs as process {self._child.pid}")
        properties = {
            "log.dirs": str(self.log_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "pybroker.metrics.listener": "127.0.0.1:0",
            **self._overrides,
        }
        command = [*self._command_prefix, sys.executable, "-m", self._module, "serve"]
        for key, value in properties.items():
            command += ["--override", f"{key}={value}"]
        return ChildProcess(command, self.output_path, self._env)

    def set_override(self, key: str, value: str) -> None:
        """Change a server property for the next start."""
        self._overrides[key] = value

    def stop(self, timeout_seconds: float = 60.0) -> int:
        """SIGTERM and wait; returns the exit status (0 after a clean stop)."""
        status = self.process.stop(timeout_seconds)
        self._child = None
        return status

    def kill(self) -> None:
        """SIGKILL and reap; the dir stays as it is."""
        self.process.kill()
        self._child = None

    def restart(self) -> ReadyLine:
        """A clean stop if it runs, then a start."""
        if self._child is not None:
            self.stop()
        return self.start()

    def rss_bytes(self) -> int:
        """Resident memory of the broker process."""
        return self.process.rss_bytes()

    def cpu_seconds(self) -> float:
        """CPU time of the broker process so far."""
        return self.process.cpu_seconds()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._child is not None and self._child.running:
                status = self.stop()
                if status != 0 and error is None:
                    raise ProcessFailed(f"the broker ended with status {status}; its output is in {self.output_path}")
            elif self._child is not None and error is None:
                raise ProcessFailed(f"the broker had ended by itself:\n{self._child.tail()}")
        finally:
            if self._temporary_dir is not None and error is None:
                shutil.rmtree(self._temporary_dir, ignore_errors=True)
