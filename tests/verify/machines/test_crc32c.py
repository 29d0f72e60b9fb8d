"""CRC32C: ARM's instructions, cross-built and run under emulation; and what is promised about speed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.micro import crc32c

ROOT = Path(__file__).resolve().parents[3]


def test_arm_under_emulation(tmp_path: Path) -> None:
    """The C test of CRC32C fails where the fastest implementation is not in use, so this one does run ARM's."""
    command = ["make", "-s", "-C", "csrc", f"B={tmp_path / 'build'}", "test-arm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_beside_other_implementations() -> None:
    """As fast as ISA-L, faster than the wheels, and a copy on the way is nearly free. Needs a quiet machine."""
    assert crc32c.main([]) == 0, "rows fail: see build/bench/crc32c.json"
