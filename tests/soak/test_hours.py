"""Runs that find what a short one cannot: kills, simulated machines and fuzzing, each for as long as it is given.

`PYBROKER_SOAK_MINUTES` says how long each of them goes on (default 60). Every round has a seed of its own, which is in
its line of `build/rounds/test_hours.jsonl`, so that a failure can be played again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from functools import partial
from itertools import chain, islice
from pathlib import Path

from tests.harness.crash.kills import AIMS, COMPACTION_AIMS, KillRun
from tests.harness.crash.trimmed_load import COMPACTED as COMPACTED_TOPIC
from tests.harness.fixtures import backends
from tests.harness.log_dirs import findings
from tests.harness.rounds import Rounds, soak_seconds

ROOT = Path(__file__).resolve().parents[2]
SIMULATIONS_PER_ROUND = 500
KILLS_PER_RUN = 200
COMPACTION_KILLS = 1000
COMPACTION_KILLS_PER_RUN = 100
#: Of each target in a round.
FUZZ_SECONDS = 10
COMPACTED = (COMPACTED_TOPIC, "__consumer_offsets")


def _make(*arguments: str, **environment: str) -> None:
    command = ["make", "--no-print-directory", "-C", str(ROOT / "csrc"), f"PYTHON={sys.executable}", *arguments]
    # A make above this one would hand its own flags down.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, environment, done.stdout[-4000:], done.stderr[-4000:])


def test_kills(rounds: Rounds) -> None:
    """Nothing acknowledged is lost or doubled, however often and whenever the broker is killed. Logs grow all the time,
    so a broker has only so many kills."""
    until = time.monotonic() + soak_seconds()
    while time.monotonic() < until:
        with KillRun(random.SystemRandom().randrange(1, 1 << 31), backends()) as run:
            for each in islice(rounds.without_end(until), KILLS_PER_RUN):
                with each:
                    each.facts |= run.kill(random.Random(each.seed).choice(list(AIMS)), seed=each.seed)
            with rounds.closing():
                print(run.finish())


def test_a_thousand_kills_of_compaction_and_retention(rounds: Rounds) -> None:
    """What the cleaner and retention write is hit most; Apache Kafka's tool reads the files every 50 kills. What is to
    be compared grows with each, so a broker has only so many."""
    kills = rounds.left(COMPACTION_KILLS, seed=1000, until=time.monotonic() + soak_seconds())
    while (first := next(kills, None)) is not None:
        with KillRun(first.seed, backends()) as run:
            for each in chain([first], islice(kills, COMPACTION_KILLS_PER_RUN - 1)):
                with each:
                    aims = COMPACTION_AIMS if each.number % 3 else list(AIMS)
                    each.facts |= run.kill(random.Random(each.seed).choice(aims), each.number, each.seed)
                    if each.number % 50 == 49:
                        assert run.stop_and_look(partial(findings, compacted=COMPACTED)) == []
            with rounds.closing():
                print(run.finish())
    rounds.require_all()


def test_simulated_machines(rounds: Rounds) -> None:
    """The data plane under seeded faults, kills and power cuts, with AddressSanitizer watching."""
    for each in rounds.without_end(time.monotonic() + soak_seconds()):
        with each:
            each.facts["seeds"] = SIMULATIONS_PER_ROUND
            for name in ("broker_sim", "leader_sim", "replication_sim"):
                settings = {"PB_SIM_SEED": str(each.seed), "PB_SIM_RUNS": str(SIMULATIONS_PER_ROUND)}
                _make(f"run-test_{name}", "SAN=asan", **settings)


def test_fuzzing(rounds: Rounds) -> None:
    """Every fuzz target gets its share of the time, some seconds at a time."""
    targets = len(list((ROOT / "csrc" / "fuzz").glob("fuzz_*.c")))
    for each in rounds.without_end(time.monotonic() + soak_seconds()):
        with each:
            each.facts["targets"] = targets
            _make("fuzz-smoke", f"FUZZ_SECONDS={FUZZ_SECONDS}", "FUZZ_RUNS=-1", f"FUZZ_SEED={each.seed}")
