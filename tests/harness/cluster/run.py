"""`python -m tests.harness.cluster.run`: a cluster under load and faults, once, with what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pybroker.cluster.settings import RELEASES
from pybroker.protocol.kafka_version import KAFKA_VERSION
from tests.harness.cluster.faults import FAULTS
from tests.harness.cluster.rounds import SHORT_SESSIONS, Composition, play_rounds


def main() -> int:
    """0 when nothing is wrong; else 1, and the cluster's directory is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.cluster.run", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--jvm-brokers", type=int, default=0)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--controller-version", choices=list(RELEASES), default=KAFKA_VERSION)
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting of every node")
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="names with commas between; all: %(default)s; or none"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hold", type=float, nargs=2, default=(0.5, 6.0), metavar="SECONDS")
    parser.add_argument("--pairs", action="store_true", help="a fault of a broker and one of a controller at once")
    parser.add_argument("--transactions", action="store_true", help="transactional producers too")
    options = parser.parse_args()
    overrides = {**SHORT_SESSIONS, **dict(each.split("=", 1) for each in options.override)}
    directory = Path(tempfile.mkdtemp(prefix="pybroker-cluster-")) / "cluster"
    report = play_rounds(
        directory,
        Composition(options.brokers, options.jvm_brokers, options.controllers, overrides, options.controller_version),
        rounds=options.rounds,
        seed=options.seed,
        faults=options.faults.split(",") if options.faults else [],
        hold_seconds=(options.hold[0], options.hold[1]),
        in_pairs=options.pairs,
        with_transactions=options.transactions,
        on_round=lambda done: print(done, flush=True),
    )
    print(report)
    for violation in report.violations[:50]:
        print(violation)
    if report.violations:
        print(f"everything is in {directory}")
        return 1
    directory.parent.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
