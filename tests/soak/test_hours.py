"""Runs that find what a short one cannot: kills, simulated machines and fuzzing, each for as long as it is given.

`PYBROKER_SOAK_MINUTES` says how long each of them goes on (default 60). Every run begins with seeds of its own, which
are printed, so that a failure can be played again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from pybroker.testing.crash.kills import AIMS, COMPACTION_AIMS, KillRun
from pybroker.testing.crash.trimmed_load import COMPACTED as COMPACTED_TOPIC
from pybroker.testing.fixtures import backends
from pybroker.testing.log_dirs import findings

ROOT = Path(__file__).resolve().parents[2]
MINUTES = float(os.environ.get("PYBROKER_SOAK_MINUTES", "60"))
SIMULATIONS_PER_RUN = 500
KILLS_PER_RUN = 200
COMPACTED = (COMPACTED_TOPIC, "__consumer_offsets")


def _deadline() -> float:
    return time.monotonic() + MINUTES * 60


def _seed() -> int:
    seed = random.SystemRandom().randrange(1, 1 << 31)
    print(f"seed {seed}")
    return seed


def _make(*arguments: str, **environment: str) -> None:
    command = ["make", "--no-print-directory", "-C", str(ROOT / "csrc"), f"PYTHON={sys.executable}", *arguments]
    # A make above this one would hand its own flags down.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, environment, done.stdout[-4000:], done.stderr[-4000:])


def test_kills() -> None:
    """Nothing acknowledged is lost or doubled, however often and whenever the broker is killed."""
    until = _deadline()
    while time.monotonic() < until:
        seed = _seed()
        aims = random.Random(seed)
        with KillRun(seed, backends()) as run:
            for _ in range(KILLS_PER_RUN):
                run.kill(aims.choice(list(AIMS)))
                if time.monotonic() >= until:
                    break
            print(run.finish())


def test_a_thousand_kills_of_compaction_and_retention() -> None:
    """What the cleaner and retention write is hit most; Apache Kafka's tool reads the files every 50 kills."""
    seed = _seed()
    aims = random.Random(seed)
    with KillRun(seed, backends()) as run:
        for number in range(1000):
            run.kill(aims.choice(COMPACTION_AIMS if number % 3 else list(AIMS)))
            if number % 50 == 49:
                assert run.stop_and_look(partial(findings, compacted=COMPACTED)) == []
        print(run.finish())


def test_simulated_machines() -> None:
    """The data plane under seeded faults, kills and power cuts, with AddressSanitizer watching."""
    until = _deadline()
    while time.monotonic() < until:
        for name in ("broker_sim", "leader_sim", "replication_sim"):
            settings = {"PB_SIM_SEED": str(_seed()), "PB_SIM_RUNS": str(SIMULATIONS_PER_RUN)}
            _make(f"run-test_{name}", "SAN=asan", **settings)


def test_fuzzing() -> None:
    """Every fuzz target gets its share of the time."""
    targets = len(list((ROOT / "csrc" / "fuzz").glob("fuzz_*.c")))
    seconds = max(1, int(MINUTES * 60 / targets))
    _make("fuzz-smoke", f"FUZZ_SECONDS={seconds}", "FUZZ_RUNS=-1", f"FUZZ_SEED={_seed()}")
