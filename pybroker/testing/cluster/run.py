"""`python -m pybroker.testing.cluster.run`: a cluster under load and faults, once, with what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.testing.cluster.faults import FAULTS
from pybroker.testing.cluster.scenario import Scenario


def main() -> int:
    """0 when nothing is wrong; else 1, and the cluster's directory is kept."""
    parser = argparse.ArgumentParser(prog="python -m pybroker.testing.cluster.run", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--jvm-brokers", type=int, default=0)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="names with commas between; all: %(default)s; or none"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hold", type=float, nargs=2, default=(3.0, 12.0), metavar="SECONDS")
    parser.add_argument("--transactions", action="store_true", help="transactional producers too")
    options = parser.parse_args()
    faults = options.faults.split(",") if options.faults else []
    namespaces = any(FAULTS[name].needs_namespaces for name in faults)
    directory = Path(tempfile.mkdtemp(prefix="pybroker-cluster-"))
    cluster = LocalCluster.make(
        directory,
        brokers=options.brokers,
        jvm_brokers=options.jvm_brokers,
        controllers=options.controllers,
        namespaces=namespaces,
    )
    try:
        cluster.up()
        scenario = Scenario(
            cluster,
            faults,
            rounds=options.rounds,
            seed=options.seed,
            hold_seconds=tuple(options.hold),
            with_transactions=options.transactions,
            on_round=lambda done: print(done, flush=True),
        )
        report = scenario.run()
    finally:
        cluster.down()
    print(report)
    for violation in report.violations[:50]:
        print(violation)
    if report.violations:
        print(f"everything is in {directory}")
        return 1
    cluster.delete()
    return 0


if __name__ == "__main__":
    sys.exit(main())
