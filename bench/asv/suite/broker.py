"""An installed broker as a child process, and pbload against it. Standard library only; see the package's text."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

SECONDS = float(os.environ.get("PYBROKER_ASV_SECONDS", "0.5"))
ROUNDS = int(os.environ.get("PYBROKER_ASV_ROUNDS", "3"))
_PBLOAD = Path(__file__).resolve().parents[3] / "build" / "load" / "pbload"
_READY = re.compile(r"\bready\b", re.IGNORECASE)
_READY_SECONDS = 60
# So that a run needs a bounded part of the disk.
_RETENTION = {
    "log.segment.bytes": str(128 << 20),
    "log.retention.bytes": str(512 << 20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """In the child: no broker outlives a benchmark that was killed. The package that is measured may not see to it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class NotStarted(RuntimeError):
    """The broker ended, or was not ready in time; the text is the end of what it said."""


class LoadFailed(RuntimeError):
    """pbload did not do its work."""


class Broker:
    """Started with `overrides`, and killed and removed at the end. Leaves it to the caller to stop it cleanly."""

    def __init__(self, overrides: Mapping[str, str]) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pybroker-asv-", dir=os.environ.get("PYBROKER_ASV_DATA")))
        self._overrides = {**_RETENTION, **overrides}
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.start_seconds = 0.0
        try:
            self.start()
        except NotStarted:
            shutil.rmtree(self._directory)
            raise

    def start(self) -> float:
        """Over the same data; the seconds until it was ready."""
        properties = {
            "log.dirs": f"{self._directory}/data",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **self._overrides,
        }
        command = [sys.executable, "-m", "pybroker", "serve"]
        for name, value in properties.items():
            command += ["--override", f"{name}={value}"]
        # Elsewhere than in a checkout: the installed package is meant.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        output = self._directory / "output"
        with output.open("wb") as sink:
            begun = time.monotonic()
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
            )
        while not _READY.search(text := output.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > begun + _READY_SECONDS:
                self.kill()
                raise NotStarted(text[-2000:])
            time.sleep(0.005)
        self.start_seconds = time.monotonic() - begun
        return self.start_seconds

    def cpu_seconds(self) -> float:
        """CPU time of the process so far."""
        fields = Path(f"/proc/{self._running.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory of the process now."""
        return int(Path(f"/proc/{self._running.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def load(self, *words: str) -> dict[str, Any]:
        """pbload's result, with the broker's `cpu_seconds`."""
        before = self.cpu_seconds()
        done = subprocess.run([_PBLOAD, *words, "--port", str(self.port)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LoadFailed(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        if result["errors"]:
            raise LoadFailed(f"{' '.join(words)}: {result['errors']}")
        return {**result, "cpu_seconds": self.cpu_seconds() - before}

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise NotStarted("the broker does not run")
        return self._process

    def kill(self) -> None:
        """SIGKILL; the data stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: a clean stop."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._running, None
        process.send_signal(number)
        process.wait(timeout=60)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._directory)
