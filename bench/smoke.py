"""One benchmark of each kind, small: `make bench-smoke`. Asserts schema and sanity, and no speed.

Each step runs the command that users run and writes its results to `build/bench/smoke`; then every file has to become
rows of the pool's schema, without a rejection. Status 1 with what is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pybroker.results.context import detect
from pybroker.results.reader import read, result_files
from pybroker.results.row import Row
from tests.harness.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench" / "smoke"
#: The suites that the results of all steps together have to hold.
SUITES = ("load", "micro", "asv", "peers")
_QUICK_LOAD = ("--seconds", "1", "--warmup", "0.2", "--interval", "0.25", "--quiet")


class StepFailed(RuntimeError):
    """A command ended with another status than 0, or what it left is not sane."""


def _run(*words: str | Path) -> str:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _files() -> list[Path]:
    """The results, and nothing else that a step keeps in a directory of its own."""
    asv_results = OUTPUT / "asv" / "results"
    return [*sorted(OUTPUT.glob("*.json")), *(result_files(asv_results) if asv_results.is_dir() else ())]


def micro() -> None:
    """Single functions, each for a moment."""
    quick = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=5", "--benchmark-calibration-precision=1")
    _run("-m", "pytest", "-q", "-p", "no:cacheprovider", "bench/micro", *quick, f"--benchmark-json={OUTPUT}/micro.json")
    _run("-m", "bench.micro.crc32c", "--quick")


def load() -> None:
    """`pybroker perf`, with plots."""
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        common = ("--bootstrap", broker.bootstrap, *_QUICK_LOAD)
        produce = ("--producers", "2", "--partitions", "2", "--keys", "100", "--codec", "lz4")
        plots = OUTPUT / "plots"
        _run(
            "-m", "pybroker", "perf", "produce", *common, *produce, "--output", OUTPUT / "load.json", "--report", plots
        )
        paced = ("--topic", "ways", "--rate", "200", "--output", OUTPUT / "end-to-end.json")
        _run("-m", "pybroker", "perf", "end-to-end", *common, *paced)
    missing = [name for name in ("throughput.png", "report.html") if not (plots / name).is_file()]
    if missing:
        raise StepFailed(f"perf --report wrote no {', '.join(missing)}")


def asv() -> None:
    """A part of the history by commit, as of this one. Its site takes npm, and is tested in `tests/verify/`."""
    part = ("--here", "--quick", "--measure-only", "--bench", "^(life|python)")
    _run("-m", "bench.asv.dashboard", *part, "--directory", OUTPUT / "asv")


def peers() -> None:
    """pybroker and Apache Kafka in turns."""
    what = ("--peers", "pybroker-direct", "kafka", "--parts", "loads", "--loads", "one in flight", "fetch", "Heartbeat")
    where = ("--data", OUTPUT / "data", "--output", OUTPUT / "peers.json")
    text = _run("-m", "bench.peers.table", "--quick", *what, *where)
    if text.count("| p50 us |") != 2 or "pybroker-direct / kafka" not in text:
        raise StepFailed(f"the table of peers is not whole:\n{text}")


def aggregate() -> None:
    """All results through the Spark job."""
    # As of a clean commit: a working tree's results are no history.
    _run("-m", "pybroker", "bench", "publish", *_files(), "--directory", OUTPUT / "pool", "--commit", "f" * 40)
    where = ("--files", OUTPUT / "pool", "--output", OUTPUT / "aggregate")
    summary = json.loads(
        _run("-m", "bench.aggregate.job", "--master", "local[2]", "--memory", "1g", "--partitions", "2", *where)
        .strip()
        .splitlines()[-1]
    )
    if not summary.get("rows") or summary.get("quarantine"):
        raise StepFailed(f"the job made {summary} of what was published")


STEPS: Mapping[str, Callable[[], None]] = {
    "micro": micro,
    "load": load,
    "asv": asv,
    "peers": peers,
    "aggregate": aggregate,
}


def check() -> Counter[str]:
    """How many rows of which suite there are. Raises `StepFailed` for anything that is no row, or no sane one."""
    found = list(read(_files(), replace(detect(OUTPUT, ROOT), commit_time="")))
    rows = [each for each in found if isinstance(each, Row)]
    wrong = [f"{each.source}: {each.reason}: {each.detail}" for each in found if not isinstance(each, Row)]
    wrong += [f"{row.source}: {row.benchmark} is {row.value}" for row in rows if row.value <= 0 or row.samples < 1]
    if wrong:
        raise StepFailed("these results are not sane:\n" + "\n".join(wrong))
    return Counter(row.suite for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and check what they left; see the module's text for the status."""
    parser = argparse.ArgumentParser(prog="python -m bench.smoke", description=__doc__)
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    options = parser.parse_args(arguments)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    started_s = time.monotonic()
    try:
        for name in options.steps:
            begun_s = time.monotonic()
            STEPS[name]()
            print(f"{name}: {time.monotonic() - begun_s:.1f} s", flush=True)
        counts = check()
        missing = [suite for suite in SUITES if suite in options.steps and not counts[suite]]
        if missing:
            raise StepFailed(f"no row of {', '.join(missing)}")
    except StepFailed as failure:
        print(f"bench-smoke: {failure}", file=sys.stderr)
        return 1
    print(f"{', '.join(f'{count} rows of {suite}' for suite, count in sorted(counts.items()))}: all sane")
    print(f"{time.monotonic() - started_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
