"""The disks and clocks of a cluster's nodes do as they are told, and only theirs: what faults rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import needs_kafka
from tests.harness.cluster.machines import Machines
from tests.harness.crash.power_disk import missing

SLOW_SECONDS = 0.4
STEP_SECONDS = 3000
PYTHON = "import sys, time\nfor _ in sys.stdin: print(time.time(), flush=True)"
JAVA = """
public class Clock {
    public static void main(String[] arguments) throws Exception {
        while (System.in.read() >= 0) {
            System.out.println(System.currentTimeMillis() / 1000.0);
        }
    }
}
"""

pytestmark = needs_kafka


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.make(tmp_path / "cluster", brokers=2)
    try:
        yield made
    finally:
        made.delete()


def sync_seconds(path: Path) -> float:
    began = time.monotonic()
    with open(path, "ab") as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
    return time.monotonic() - began


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_slow_disk_is_that_of_one_node(cluster: LocalCluster) -> None:
    kept = cluster.log_dir(1) / "meta.properties"
    before = kept.read_bytes()
    with Machines(cluster, with_disks=True) as machines:
        assert kept.read_bytes() == before
        probes = [cluster.log_dir(node_id) / "probe" for node_id in (1, 2)]
        machines.slow_disk(1)
        slow, other = map(sync_seconds, probes)
        assert slow > SLOW_SECONDS
        assert other < slow
        machines.mend_disk(1)
        assert sync_seconds(probes[0]) < slow
    assert kept.read_bytes() == before, "what was on the disks is in the directory of the cluster afterwards"
    assert probes[0].read_bytes() == b"xx"


@pytest.mark.parametrize("program", ["python", "java"])
def test_a_clock_is_stepped_while_its_node_runs(program: str, cluster: LocalCluster, tmp_path: Path) -> None:
    source = tmp_path / "Clock.java"
    source.write_text(JAVA)
    command = [sys.executable, "-c", PYTHON] if program == "python" else ["java", str(source)]
    with Machines(cluster, with_clocks=True) as machines:
        environment = {**os.environ, **cluster.environments[1]}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:

            def told() -> float:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write("\n")
                return float(process.stdout.readline())

            for step in (0, STEP_SECONDS, -STEP_SECONDS, 0):
                machines.step_clock(1, step)
                machines.step_clock(2, 2 * STEP_SECONDS)
                now = time.time()
                assert now + step - 1 < told() < time.time() + step + 1
            assert process.stdin is not None
            process.stdin.close()
