"""CRC32C on the instruction set this machine has not got: ARM's, cross-built and run under emulation."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_arm_under_emulation(tmp_path: Path) -> None:
    """The C test of CRC32C fails where the fastest implementation is not in use, so this one does run ARM's."""
    command = ["make", "-s", "-C", "csrc", f"B={tmp_path / 'build'}", "test-arm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
