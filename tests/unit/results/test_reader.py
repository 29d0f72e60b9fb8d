"""Each kind of result file, from fixtures that the programs wrote themselves, and files that are none of them."""

from __future__ import annotations

import json
import platform
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pybroker.results.context import Context, detect
from pybroker.results.limits import limit_of
from pybroker.results.reader import read, result_files
from pybroker.results.row import Reason, Rejection, Row

FIXTURES = Path(__file__).with_name("fixtures")
NOW = datetime(2027, 1, 1, tzinfo=UTC)
HERE = Context(
    machine="here-abcdef", cpu="A CPU", cores=4, disk="nvme", file_system="ext4", profile="nvme", engine="direct"
)
COMMIT = "b52570780fac34e10cf6c1e2473746803d32f15e"


def results(*paths: Path, context: Context = HERE) -> tuple[list[Row], list[Rejection]]:
    found = list(read([file for path in paths for file in result_files(path)], context, NOW))
    rows = [each for each in found if isinstance(each, Row)]
    return rows, [each for each in found if isinstance(each, Rejection)]


def by_name(rows: list[Row], **parameters: str) -> dict[str, Row]:
    return {row.benchmark: row for row in rows if parameters.items() <= row.parameters.items()}


def changed(tmp_path: Path, name: str, **members: Any) -> Path:
    document = json.loads((FIXTURES / name).read_text()) | members
    path = tmp_path / Path(name).name
    path.write_text(json.dumps(document))
    return path


def test_pbload() -> None:
    rows, rejections = results(FIXTURES / "pbload.json", context=Context(machine="m", parameters={"codec": "lz4"}))
    assert not rejections
    load = json.loads((FIXTURES / "pbload.json").read_text())
    found = by_name(rows)
    assert found.keys() == {f"produce.{name}" for name in ("mb_per_s", "requests_per_s", "p50", "p99", "p99.9")}
    throughput = found["produce.mb_per_s"]
    assert (throughput.value, throughput.unit, throughput.better) == (load["mb_per_s"], "MB/s", "higher")
    assert throughput.limit == "receive.256KiB"
    assert throughput.samples == load["requests"]
    assert throughput.parameters == {
        "connections": "1",
        "in_flight": "5",
        "partitions": "1",
        "batch_bytes": "262144",
        "record_bytes": "1024",
        "codec": "lz4",
    }
    assert (found["produce.p99"].value, found["produce.p99"].better) == (load["latency_us"]["p99"], "lower")


def test_peers() -> None:
    rows, rejections = results(FIXTURES / "peers.json")
    assert not rejections
    ours, theirs = by_name(rows, peer="pybroker-io_uring"), by_name(rows, peer="kafka")
    assert ours.keys() == theirs.keys()
    throughput = ours["produce 256 KiB, 1 x 5: mb_per_s"]
    assert (throughput.samples, throughput.confidence) == (6, 0.95)
    assert throughput.confidence_low is not None
    assert throughput.confidence_low < throughput.value < (throughput.confidence_high or 0)
    assert (throughput.profile, throughput.backend, throughput.engine) == ("generic", "io_uring", "paced")
    # The machine is the one the file tells of, and a peer has none of our settings.
    assert (throughput.machine, throughput.cores, throughput.disk) == ("server-1a2b3c", 2, "vda")
    kafka = theirs["produce 256 KiB, 1 x 5: cpu_s_per_gb"]
    assert (kafka.profile, kafka.engine, kafka.parameters["peer_version"]) == ("", "", "4.3.0")
    restart = ours["unclean restart, 0.0312 GiB, 4 part.: seconds"]
    assert (restart.unit, restart.better, restart.samples) == ("seconds", "lower", 1)


def test_what_is_no_peer_is_not_published_as_one(tmp_path: Path) -> None:
    document = json.loads((FIXTURES / "peers.json").read_text())
    restart = document["sections"]["recovery"]["rows"]
    bound = {**restart[0], "shape": "one in flight", "metric": "p50 us, disk"}
    beside = {**document["measurements"][0], "shape": "beside"}
    del beside["cpu_s"]
    members = {
        "sections": {"durable": {"sides": {"ours": "pybroker-io_uring", "theirs": "against"}, "rows": [bound]}},
        "measurements": [beside],
    }
    rows, rejections = results(changed(tmp_path, "peers.json", **members))
    assert not rejections
    assert {row.parameters["peer"] for row in rows} == {"pybroker-io_uring"}
    assert by_name(rows)["one in flight: p50 us, disk"].unit == "us"
    assert "beside: p99" in by_name(rows)
    assert "beside: cpu_s_per_gb" not in by_name(rows)


def test_pytest_benchmark() -> None:
    rows, rejections = results(FIXTURES / "pytest_benchmark.json")
    assert not rejections
    assert [row.parameters for row in rows] == [{"size": "64"}, {"size": "1024"}]
    for row in rows:
        assert (row.suite, row.benchmark, row.unit, row.engine) == ("micro", "test_b.py::test_sum", "s", "paced")
        assert (row.commit, row.commit_time) == ("c" * 40, "2026-11-20T09:00:00Z")
        assert (row.machine, row.cpu, row.cores, row.disk) == ("laptop", "AMD EPYC", 2, "")
        assert row.confidence_low is not None
        assert row.confidence_low <= row.value


def test_asv_with_its_bare_infinity() -> None:
    rows, rejections = results(FIXTURES / "asv")
    assert sorted((each.reason, each.detail) for each in rejections) == [
        (Reason.FAILED, "b.track_broken failed with all its parameters"),
        (Reason.NOT_A_NUMBER, "value is inf"),
        (Reason.NOT_A_NUMBER, "value is nan"),
        (Reason.NOT_A_NUMBER, "value is nan"),
    ]
    found = {(row.benchmark, row.engine, row.parameters.get("batch_bytes", "")): row for row in rows}
    track = found["b.Suite.track_throughput", "paced", "16384"]
    assert (track.value, track.unit, track.better) == (16384 / 7, "MB/s", "higher")
    assert found["b.peakmem_start", "direct", ""].unit == "bytes"  # the engine is the context's
    timed = found["b.Suite.time_append", "direct", "16384"]
    assert (timed.unit, timed.better, timed.confidence, timed.samples) == ("seconds", "lower", None, 1)
    assert (timed.machine, timed.cores, timed.ram_bytes) == ("laptop", 8, 16384000 * 1024)
    assert (timed.commit, timed.commit_time, timed.time) == (COMMIT, "2026-11-21T17:34:06Z", "2026-11-21T17:34:09Z")
    assert all(row.parameters["environment"] == "virtualenv-py3.11" for row in rows)


def test_asv_without_its_table_of_benchmarks(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "asv" / "laptop", tmp_path / "laptop")
    rows, _ = results(tmp_path)
    units = {row.benchmark: row.unit for row in rows}
    assert units == {"b.Suite.time_append": "seconds", "b.Suite.track_throughput": "unit", "b.peakmem_start": "bytes"}


def test_limits() -> None:
    rows, rejections = results(FIXTURES / "measurement.json")
    assert not rejections
    document = json.loads((FIXTURES / "measurement.json").read_text())
    found = by_name(rows)
    received = found["receive.256KiB"]
    assert received.suite == "limit"
    assert received.value == document["results"]["receive.256KiB"]["bytes_per_second"] / 1e6
    assert (received.machine, received.cpu, received.file_system) == ("here-abcdef", "AMD EPYC", "ext4")
    assert (received.disk, received.cores, received.time) == ("vda", 2, "2026-11-21T17:52:59Z")
    assert found["round_trip.spin_50us.p50"].unit == "us"


def test_loads_name_limits_that_are_measured() -> None:
    measured = by_name(results(FIXTURES / "measurement.json")[0])
    named = [row for row in results(FIXTURES / "peers.json", FIXTURES / "pbload.json")[0] if row.limit]
    assert {row.limit for row in named} == {"receive.256KiB", "receive.256KiB.cpu_s_per_gb"}
    assert all(row.unit == measured[row.limit].unit for row in named)


@pytest.mark.parametrize(
    ("load", "figure", "limit"),
    [
        ({"mode": "produce", "batch_bytes": 1 << 20}, "mb_per_s", "receive.256KiB"),
        ({"mode": "produce", "batch_bytes": 16384}, "mb_per_s", "receive.16KiB"),
        ({"mode": "produce", "batch_bytes": 1024}, "cpu_s_per_gb", "receive.1KiB.cpu_s_per_gb"),
        ({"mode": "produce", "connections": 1, "in_flight": 1}, "p50", "round_trip.spin_50us.p50"),
        ({"mode": "produce", "connections": 4, "in_flight": 1}, "p50", ""),
        ({"mode": "produce"}, "mb_per_s", ""),
        ({"mode": "fetch"}, "mb_per_s", "send.1MiB"),
        ({"mode": "heartbeat"}, "mb_per_s", ""),
        ({"mode": "fetch"}, "requests_per_s", ""),
    ],
)
def test_which_limit_bounds_a_load(load: dict[str, object], figure: str, limit: str) -> None:
    assert limit_of(load, figure) == limit


def test_any_other_file_in_a_machines_folder_is_named(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "asv", tmp_path / "asv")
    (tmp_path / "asv" / "laptop" / "notes.json").write_text('{"todo": []}')
    rows, rejections = results(tmp_path)
    assert len(rows) == 6
    assert [(each.reason, each.source) for each in rejections if each.reason == Reason.UNKNOWN_FORMAT] == [
        (Reason.UNKNOWN_FORMAT, "notes.json")
    ]


@pytest.mark.parametrize("name", ["pbload.json", "peers.json", "pytest_benchmark.json"])
def test_an_unknown_version_is_not_guessed_at(name: str, tmp_path: Path) -> None:
    rows, rejections = results(changed(tmp_path, name, version=99))
    assert (rows, [each.reason for each in rejections]) == ([], [Reason.UNKNOWN_VERSION])


@pytest.mark.parametrize(
    ("name", "members"),
    [("asv/laptop/b5257078-virtualenv-py3.11.json", {"version": 3}), ("measurement.json", {"schema": 2})],
)
def test_nor_is_a_schema(name: str, members: dict[str, Any], tmp_path: Path) -> None:
    rows, rejections = results(changed(tmp_path, name, **members))
    assert (rows, [each.reason for each in rejections]) == ([], [Reason.UNKNOWN_VERSION])


@pytest.mark.parametrize("path", sorted(FIXTURES.rglob("*.json")), ids=lambda path: path.name)
def test_a_truncated_file_is_named_wherever_it_ends(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes().rstrip()
    cut = tmp_path / "cut.json"
    for end in range(0, len(content), max(1, len(content) // 40)):
        cut.write_bytes(content[:end])
        assert [each.reason for each in results(cut)[1]] == [Reason.TRUNCATED]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("pbload.json", {"latency_us": None}),
        ("pbload.json", {"mb_per_s": "fast"}),
        ("pbload.json", {"requests": 0}),
        ("pbload.json", {"errors": {"6": 1}}),
        ("peers.json", {"measurements": [{"peer": "kafka"}]}),
        ("peers.json", {"sections": {"speed": {"rows": []}}}),
        ("pytest_benchmark.json", {"benchmarks": [{"stats": {}}]}),
        ("asv/laptop/b5257078-virtualenv-py3.11.json", {"results": {"a": 7}}),
        ("asv/laptop/b5257078-virtualenv-py3.11.json", {"params": None}),
        ("measurement.json", {"made_at": "noon"}),
        ("measurement.json", {"machine": {}}),
    ],
)
def test_a_file_of_another_shape_is_malformed(name: str, members: dict[str, Any], tmp_path: Path) -> None:
    rows, rejections = results(changed(tmp_path, name, **members))
    assert not [row for row in rows if row.suite == "load"]
    assert Reason.MALFORMED in [each.reason for each in rejections]


def test_the_same_file_twice_is_a_duplicate_and_another_value_a_conflict(tmp_path: Path) -> None:
    original = FIXTURES / "pytest_benchmark.json"
    again = changed(tmp_path, "pytest_benchmark.json")
    assert [each.reason for each in results(original, again)[1]] == [Reason.DUPLICATE] * 2
    document = json.loads(original.read_text())
    document["benchmarks"][0]["stats"]["data"] = [1.0] * 9
    again.write_text(json.dumps(document))
    assert [each.reason for each in results(original, again)[1]] == [Reason.CONFLICT, Reason.DUPLICATE]


def test_a_file_from_this_host_is_this_machines(tmp_path: Path) -> None:
    document = json.loads((FIXTURES / "pytest_benchmark.json").read_text())
    document["machine_info"]["node"] = platform.node()
    rows, _ = results(changed(tmp_path, "pytest_benchmark.json", machine_info=document["machine_info"]))
    assert {(row.machine, row.disk) for row in rows} == {("here-abcdef", "nvme")}


def test_this_machine_can_be_told(tmp_path: Path) -> None:
    context = detect(tmp_path, tmp_path)
    assert context.machine.startswith(platform.node())
    assert context.cores > 0
    assert context.ram_bytes > 1 << 26
    assert context.cpu
    assert context.file_system
    assert context.commit == ""
