"""The pool of results from end to end: `pybroker bench publish`, a topic of a pybroker, Spark, and kills on the way.

Each run of the job is a process of its own with a JVM of its own; one more JVM reads the tables.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from bench.aggregate.session import start
from pybroker.results.publish import to_directory, to_topic
from pybroker.results.row import Reason, Rejection, Row, check, time_text
from tests.harness.broker import BrokerProcess

# PySpark leaves the socket of each result to the collector of garbage.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests" / "unit" / "results" / "fixtures"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
JOB = (sys.executable, "-m", "bench.aggregate.job", "--master", "local[2]", "--memory", "1g", "--partitions", "4")


def run_job(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """The job to its end: its status and its summary."""
    words = [*JOB, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 1), f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr[-4000:]}"
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, summary


def publish(*arguments: str | Path) -> int:
    # A checkout's commit may be younger than the files' times, and is not theirs.
    words = [sys.executable, "-m", "pybroker", "bench", "publish", "--commit", "f" * 40, *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, timeout=120, check=False).returncode


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start("local[1]", "1g", tmp_path_factory.mktemp("spark"), with_kafka=False, partitions=2)
    yield session
    session.stop()


def row(number: int, **changes: Any) -> Row:
    """Different ones have different times and commits, in order."""
    moment = NOW - timedelta(days=30) + timedelta(minutes=number)
    plain = Row(
        suite="load",
        benchmark="produce.mb_per_s",
        unit="MB/s",
        better="higher",
        value=100.0,
        samples=3,
        time=time_text(moment),
        machine="slow",
        commit=f"{number:040x}",
        commit_time=time_text(moment),
        profile="generic",
        engine="paced",
        limit="receive.256KiB",
    )
    return replace(plain, **changes)


# ---- what is judged, and how the tables come out ---------------------------------------------------------------------

GOOD = row(0, machine="bad-input", benchmark="judged").as_json()
BAD: list[tuple[str, Reason]] = [
    (json.dumps(GOOD)[:-30], Reason.TRUNCATED),
    ("", Reason.TRUNCATED),
    ('{"some": "thing"}', Reason.UNKNOWN_FORMAT),
    (json.dumps(GOOD | {"schema": 2}), Reason.UNKNOWN_VERSION),
    (json.dumps(GOOD | {"value": math.nan}), Reason.NOT_A_NUMBER),
    (json.dumps(GOOD | {"value": -math.inf}), Reason.NOT_A_NUMBER),
    (json.dumps(GOOD | {"value": "12"}), Reason.MALFORMED),
    (json.dumps(GOOD | {"value": None}), Reason.MALFORMED),
    (json.dumps(GOOD | {"samples": 1.5}), Reason.MALFORMED),
    (json.dumps(GOOD | {"samples": -1}), Reason.MALFORMED),
    (json.dumps(GOOD | {"machine": ""}), Reason.MALFORMED),
    (json.dumps(GOOD | {"better": "more"}), Reason.MALFORMED),
    (json.dumps(GOOD | {"time": "yesterday"}), Reason.MALFORMED),
    (json.dumps(GOOD | {"commit_time": "noon"}), Reason.MALFORMED),
    (json.dumps(GOOD | {"confidence": 0.95}), Reason.MALFORMED),
    (json.dumps(GOOD | {"time": time_text(NOW + timedelta(minutes=6))}), Reason.CLOCK_SKEW),
    (json.dumps(GOOD | {"time": "2019-01-01T00:00:00Z", "commit_time": ""}), Reason.CLOCK_SKEW),
    (json.dumps(GOOD | {"commit_time": time_text(NOW - timedelta(days=29))}), Reason.CLOCK_SKEW),
    (json.dumps(Rejection(Reason.FAILED, "it failed", "some.json").as_json()), Reason.FAILED),
]


def python_says(line: str) -> Reason | None:
    """What `check` says of a line, where the line is a row at all."""
    try:
        found = check(json.loads(line), "here", NOW)
    except ValueError:
        return Reason.TRUNCATED
    return found.reason if isinstance(found, Rejection) else None


def histories() -> list[Row]:
    """Three machines under three profiles. The slow one loses a tenth ten commits before the end."""
    noise = np.random.default_rng(1).standard_t(3, (3, 60)) * 0.02 / 3**0.5
    noise[0, 50:] -= 0.1
    made = []
    for machine, (name, profile, level) in enumerate(
        (("slow", "hdd", 100.0), ("middle", "virtual-machine", 200.0), ("quick", "nvme", 400.0))
    ):
        values = level * (1 + noise[machine])
        made += [row(n, machine=name, profile=profile, value=float(value)) for n, value in enumerate(values)]
        limit = row(0, suite="limit", benchmark="receive.256KiB", machine=name, value=500.0, limit="", commit="")
        made.append(limit)
    return made


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    """Everything at once: two machines by files, one through a topic, some of it twice, and all that is bad."""
    directory, output = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("pool")
    made = histories()
    by_files = [each for each in made if each.machine != "quick"]
    to_directory(by_files, directory)
    bad = directory / "bad.jsonl"
    again = [by_files[0].as_json(), by_files[1].as_json() | {"value": 1.0}]
    bad.write_text("".join(f"{line}\n" for line in [*(line for line, _ in BAD), *map(json.dumps, again)]))
    for path in directory.iterdir():
        moment = NOW.timestamp() + (1 if path == bad else 0)
        os.utime(path, (moment, moment))
    with BrokerProcess() as broker:
        to_topic([each for each in made if each.machine == "quick"], broker.bootstrap, "results")
        assert publish(FIXTURES / "pbload.json", "--bootstrap", broker.bootstrap, "--topic", "results") == 0
        assert publish(FIXTURES / "asv", "--bootstrap", broker.bootstrap, "--topic", "results") == 1
        topic = ("--bootstrap", broker.bootstrap, "--topic", "results", "--reference", "middle")
        status, summary = run_job("--files", directory, *topic, "--output", output)
        assert run_job("--files", directory, *topic, "--output", output)[1]["rows"] == summary["rows"]
    return output, status, summary


def table(spark: SparkSession, aggregated: tuple[Path, int, dict[str, Any]], name: str, where: str) -> list[Any]:
    return spark.read.parquet(str(aggregated[0] / name)).where(where).collect()


def test_bad_input_is_in_quarantine_with_its_reason(
    spark: SparkSession, aggregated: tuple[Path, int, dict[str, Any]]
) -> None:
    found = Counter(each["reason"] for each in table(spark, aggregated, "quarantine", "place = 'bad.jsonl'"))
    expected = Counter(str(reason) for _, reason in BAD if reason)
    expected.update([str(Reason.DUPLICATE), str(Reason.CONFLICT)])
    assert found == expected
    # What publish refused came through the topic with its reason.
    (failed, *others) = table(spark, aggregated, "quarantine", "place like 'results-%' and reason = 'failed'")
    assert (others, failed["source"][:8]) == ([], "b5257078")


def test_python_and_spark_judge_alike() -> None:
    """The Spark side is the test above."""
    for line, reason in BAD:
        if reason not in (Reason.UNKNOWN_FORMAT, Reason.UNKNOWN_VERSION, Reason.FAILED):
            assert python_says(line) == reason, line


def test_every_good_row_is_there_once(spark: SparkSession, aggregated: tuple[Path, int, dict[str, Any]]) -> None:
    rows = table(spark, aggregated, "rows", "machine in ('slow', 'middle', 'quick')")
    assert sorted(each["key"] for each in rows) == sorted(each.key for each in histories())
    loads = table(spark, aggregated, "rows", "suite = 'load' and source = 'pbload.json'")
    assert len(loads) == 5
    assert len(table(spark, aggregated, "rows", "suite = 'asv'")) == 6


def test_a_regression_is_named_and_is_the_exit_status(
    spark: SparkSession, aggregated: tuple[Path, int, dict[str, Any]]
) -> None:
    output, status, summary = aggregated
    assert (status, summary["regressions"]) == (1, 1)
    (change,) = table(spark, aggregated, "changes", "is_regression")
    assert (change["machine"], change["age_commits"]) == ("slow", pytest.approx(10, abs=2))
    assert change["improvement"] == pytest.approx(0.9, abs=0.02)
    page = (output / "report.html").read_text()
    assert "1 regressions" in page
    assert "<svg" in page
    assert "<script" not in page


def test_machines_are_compared_and_held_against_their_limits(
    spark: SparkSession, aggregated: tuple[Path, int, dict[str, Any]]
) -> None:
    benchmark = "benchmark = 'produce.mb_per_s' and machine in ('slow', 'middle', 'quick')"
    ratios = {each["machine"]: each for each in table(spark, aggregated, "ratios", benchmark)}
    assert ratios.keys() == {"slow", "quick"}
    assert ratios["quick"]["improvement"] == pytest.approx(2, rel=0.02)
    assert ratios["quick"]["improvement_low"] < 2 < ratios["quick"]["improvement_high"]
    assert ratios["slow"]["improvement"] == pytest.approx(0.45, rel=0.03)
    fractions = {each["machine"]: each["fraction"] for each in table(spark, aggregated, "roofline", benchmark)}
    assert fractions == {
        "slow": pytest.approx(0.18, rel=0.03),
        "middle": pytest.approx(0.4, rel=0.02),
        "quick": pytest.approx(0.8, rel=0.02),
    }


# ---- kills -----------------------------------------------------------------------------------------------------------

STREAMED = 4000
BATCH = 100


def committed_batches(output: Path) -> int:
    """How many batches Spark's file sink has committed."""
    return len([each for each in (output / "raw" / "_spark_metadata").glob("*") if each.name.isdigit()])


def follow_and_kill(arguments: list[str], output: Path, batches: int, after_seconds: float) -> None:
    """The stream, until some more batches are there and a moment longer; then SIGKILL, Python and JVM."""
    target = committed_batches(output) + batches
    with open(output.parent / "follow.out", "ab") as log:
        process = subprocess.Popen([*JOB, *arguments], cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while committed_batches(output) < target:
            assert process.poll() is None, (output.parent / "follow.out").read_text()[-4000:]
            assert time.monotonic() < deadline, "the stream does not get on"
            time.sleep(0.02)
        time.sleep(after_seconds)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_killed_stream_neither_loses_nor_doubles_a_row(tmp_path: Path, spark: SparkSession) -> None:
    made = [row(number, value=float(number + 1)) for number in range(STREAMED)]
    output = tmp_path / "pool"
    with BrokerProcess() as broker:
        topic = ["--bootstrap", broker.bootstrap, "--topic", "results", "--output", str(output)]
        slices = ["--batch-records", str(BATCH)]
        to_topic(made[: STREAMED // 2], broker.bootstrap, "results")
        follow_and_kill([*topic, *slices, "--read", "follow"], output, 2, 0.1)
        follow_and_kill([*topic, *slices, "--read", "follow"], output, 1, 0.7)
        to_topic(made[STREAMED // 2 :], broker.bootstrap, "results")
        follow_and_kill([*topic, *slices, "--read", "follow"], output, 2, 1.5)
        assert committed_batches(output) < STREAMED // BATCH, "the kills came too late to be in mid-stream"
        _, summary = run_job(*topic)
        in_one_read, separate = ["--read", "batch"], ["--output", str(tmp_path / "batch")]
        _, batch_summary = run_job(*topic[:4], *in_one_read, *separate)
    assert (summary["rows"], summary["quarantined"]) == (STREAMED, 0)
    assert (batch_summary["rows"], batch_summary["quarantined"]) == (STREAMED, 0)
    raw = spark.read.parquet(str(output / "raw"))
    assert raw.count() == STREAMED
    assert raw.select("place").distinct().count() == STREAMED
    rows = spark.read.parquet(str(output / "rows"))
    assert {each["key"] for each in rows.select("key").collect()} == {each.key for each in made}
