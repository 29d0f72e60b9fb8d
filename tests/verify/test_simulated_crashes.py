"""The data plane and the log on the simulated machine: a thousand seeds each, where `make test` has twenty."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["test_broker_sim", "test_log_sim"])
def test_a_thousand_seeds(name: str) -> None:
    done = subprocess.run(
        ["make", "-C", str(REPOSITORY / "csrc"), f"run-{name}"],
        env={**os.environ, "PB_SIM_RUNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert done.stderr.count("seed ") >= 1000, "fewer seeds ran than were asked for"
