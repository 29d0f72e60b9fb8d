"""Apache Kafka's command line tools give the same facts of clusters with brokers of pybroker as of one without: the
same story to three clusters, of pybroker's brokers, of both kinds, and of Apache Kafka's."""

from __future__ import annotations

import difflib
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "kafka"))

from cluster_tool_script import Action, ClusterSide, comparable, leave, tool_script, write_inputs
from tool_process import Tools
from tool_script import TOOLS, Step

from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, needs_kafka

_CATCH_UP_SECONDS = 10.0
_SERVED = re.compile(r"^\t(\w+\(\d+\): .+?),?$", re.MULTILINE)
_BROKERS = {"Kafka": (0, 3), "pybroker": (3, 0), "mixed": (2, 1)}

Outcome = tuple[int, list[str]]


@pytest.fixture(params=CONTROLLER_VERSIONS)
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[ClusterSide]]:
    """Apache Kafka's first."""
    with ExitStack() as open_clusters:

        def make(name: str) -> ClusterSide:
            brokers, jvm_brokers = _BROKERS[name]
            cluster = LocalCluster.make(
                tmp_path / name, brokers=brokers, jvm_brokers=jvm_brokers, controller_version=request.param
            )
            open_clusters.callback(cluster.delete)
            cluster.up()
            side = ClusterSide(name, cluster, tmp_path / f"{name}-files")
            open_clusters.callback(leave, side)
            write_inputs(side)
            return side

        with ThreadPoolExecutor() as pool:
            made = list(pool.map(make, _BROKERS))
        yield made


def run(tools: Tools, step: Step, side: ClusterSide) -> Outcome:
    return comparable(step, side, *tools.ended(step.tool, *map(side.filled, step.arguments)))


def differences(tools: Tools, step: Step, sides: list[ClusterSide]) -> list[str]:
    """How the others differ from the first. What only reads is repeated until all have caught up."""
    deadline = time.monotonic() + (_CATCH_UP_SECONDS if step.reads else 0)
    while True:
        first, *others = [(side.name, run(tools, step, side)) for side in sides]
        found = [difference(step, first, other) for other in others if other[1] != first[1]]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.2)


def difference(step: Step, first: tuple[str, Outcome], other: tuple[str, Outcome]) -> str:
    (first_name, (first_status, expected)), (name, (status, lines)) = first, other
    titles = (f"{first_name}, status {first_status}", f"{name}, status {status}")
    return "\n".join([f"=== {step.name}", *difflib.unified_diff(expected, lines, *titles, n=1, lineterm="")])


@needs_kafka
def test_tools_say_the_same_of_all(sides: list[ClusterSide]) -> None:
    with closing(Tools(sides[0].cluster.layout.bootstrap)) as tools:
        found, count = [], 0
        for scene in tool_script():
            if isinstance(scene, Action):
                for side in sides:
                    scene.run(side)
                continue
            count += 1
            differing = differences(tools, scene, sides)
            print(scene.name, *differing, sep="\n", flush=True)
            found += differing
        assert count > 90
        assert not found, "\n".join(found)
        kafkas, *others = [served(tools, side) for side in sides]
        for each in others:
            assert each
            assert each <= kafkas, each - kafkas


def served(tools: Tools, side: ClusterSide) -> set[str]:
    """APIs with their versions that every broker has."""
    bootstrap = side.cluster.layout.bootstrap
    status, output = tools.ended(f"{TOOLS}BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert status == 0, output
    found = [{line for line in _SERVED.findall(part) if "UNSUPPORTED" not in line} for part in output.split("(\n")[1:]]
    assert len(found) == len(side.cluster.layout.brokers)
    return set.intersection(*found)
