"""zsh and fish complete `pybroker` with the scripts that it prints, as a person at a terminal meets it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
    "TERM": "dumb",
}
WAIT_SECONDS = 60.0


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, command: list[str], home: Path) -> None:
        self._master, slave = pty.openpty()
        environment = {**ENVIRONMENT, "HOME": str(home), "ZDOTDIR": str(home)}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> None:
        """Read until the shell has written this."""
        seen = ""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([self._master], [], [], 1.0)[0]:
                seen += os.read(self._master, 4096).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh(tmp_path: Path) -> None:
    terminal = Terminal(["zsh", "-f", "-i"], tmp_path)
    try:
        # Asked for in two halves, so that the echo of what is typed is not taken for the answer.
        terminal.type('autoload -U compinit; compinit -u; eval "$(pybroker completion zsh)"; echo re""ady\n')
        terminal.until("ready")
        terminal.type("pybroker metad\t")
        terminal.until("metadata")
        terminal.type("c\t")
        terminal.until("cat")
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish(tmp_path: Path) -> None:
    script = 'pybroker completion fish | source; complete -C "pybroker groups reset-offsets --to-d"'
    environment = {**ENVIRONMENT, "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", script], env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "--to-datetime" in done.stdout
