"""Apache Kafka's command line tools, run one after the other in one JVM by `ToolRunner.java`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.harness.kafka import tool_command

_RUNNER = Path(__file__).parent / "ToolRunner.java"


class Tools:
    """A JVM that runs tools; those of `run` against `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(tool_command(str(_RUNNER)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ended(self, tool: str, *arguments: str) -> tuple[int, str]:
        """Exit status of a tool, and what it wrote to both streams. A last argument `<PATH` is its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *arguments)).encode() + b"\n")
        self._process.stdin.flush()
        code, length = map(int, self._process.stdout.readline().split())
        return code, self._process.stdout.read(length).decode()

    def run(self, tool: str, *arguments: str, status: int = 0) -> str:
        """What the tool wrote; fails unless it ended with `status`."""
        code, output = self.ended(tool, "--bootstrap-server", self._bootstrap, *arguments)
        assert code == status, f"{tool} {' '.join(arguments)} ended with status {code}:\n{output}"
        return output

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._process.stdout.close()
