"""A whole broker, scraped as Prometheus does, and asked how it is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_client import config_for, connected, running
from prometheus_client.parser import text_string_to_metric_families

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.native.metrics import ping
from pybroker.profiles import load_profile
from pybroker.protocol import messages as m
from pybroker.server.daemon import Daemon, ready_line
from pybroker.server.observe import health, observer
from pybroker.server.observe.catalogue import METRICS
from pybroker.server.observe.health import Health
from pybroker.server.observe.observer import LISTENER_KEY
from pybroker.server.observe.turn_meter import metered_loop
from tests.harness.process import free_port

#: What this broker has no values for: nothing promises durability, one look at the page cache follows the scrape, and
#: there is nobody to ask about transactions.
ABSENT = {
    "pybroker_log_dir_flush_doubtful",
    "pybroker_log_dir_page_cache_bytes",
    "pybroker_transaction_verification_seconds",
    "pybroker_transaction_verification_failures_total",
}


def observed_config(log_dir: Path, **overrides: str) -> BrokerConfig:
    return config_for(log_dir, pybroker_metrics_listener=f"127.0.0.1:{free_port()}", **overrides)


async def get(daemon: Daemon, path: str) -> tuple[int, str]:
    assert daemon.observer.address is not None
    reader, writer = await asyncio.open_connection(*daemon.observer.address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def get_json(daemon: Daemon, path: str) -> tuple[int, Any]:
    status, body = await get(daemon, path)
    return status, json.loads(body)


async def scrape(daemon: Daemon) -> dict[tuple[str, ...], float]:
    """Values by (name, label values in order of their names)."""
    status, body = await get(daemon, "/metrics")
    assert status == 200
    return {
        (each.name, *(each.labels[name] for name in sorted(each.labels))): each.value
        for family in text_string_to_metric_families(body)
        for each in family.samples
    }


def test_a_scrape_tells_what_clients_did(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon, connected(daemon) as client:
            assert f" metrics=http://127.0.0.1:{daemon.observer.address[1]}/metrics" in ready_line(daemon, 1)
            await client.make_topic("t")
            for _ in range(3):
                assert (await client.produce("t", b"x" * 100, b"y" * 100)).error_code == 0
            row = await client.fetch("t", 0)
            assert row.high_watermark == 6
            await commit(client, "g", "t", 4)
            found = await scrape(daemon)
            size = found["pybroker_partition_size_bytes", "0", "t"]
            assert size > 600
            assert found["pybroker_topic_bytes_in_total", "t"] == size
            assert found["pybroker_topic_records_in_total", "t"] == 6
            assert found["pybroker_topic_bytes_out_total", "t"] == size
            assert found[("pybroker_produced_records_total",)] == 6
            assert found[("pybroker_produced_bytes_total",)] == size
            assert found["pybroker_partition_log_end_offset", "0", "t"] == 6
            assert found["pybroker_group_lag_records", "g", "0", "t"] == 2
            assert found["pybroker_groups", "Empty"] == 1
            assert found["pybroker_request_seconds_count", "Produce", "total"] == 3
            assert found["pybroker_request_seconds_count", "Metadata", "local"] >= 2, "one starts the topic"
            assert found["pybroker_request_seconds_sum", "Produce", "total"] > 0
            assert found["pybroker_doorbell_seconds_count",] >= 3
            assert found["pybroker_durability_debt_bytes",] >= size
            assert found["pybroker_ready",] == 1
            assert found["pybroker_leader_partitions",] == found["pybroker_cluster_partitions",] == 2
            assert found["pybroker_offline_replicas",] == found["pybroker_under_replicated_partitions",] == 0
            assert found["pybroker_connections",] == 1
            assert found["pybroker_thread_cpu_seconds_total", "pb-reactor-0"] >= 0

    asyncio.run(run())


async def commit(client: Any, group: str, topic: str, offset: int) -> None:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    request = m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    async with asyncio.timeout(60):
        while True:
            response = await client.call(request, 8)
            code = response.topics[0].partitions[0].error_code
            if code == 0:
                return
            assert code in (14, 15, 16), "it is being loaded"
            await client.call(m.FindCoordinatorRequest(key=group), 2)
            await asyncio.sleep(0.02)


def test_each_metric_that_is_told_is_documented_and_the_reverse(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"x")
            await commit(client, "g", "t", 1)
            _, body = await get(daemon, "/metrics")
            told = {line.split()[2]: line.split()[3] for line in body.splitlines() if line.startswith("# TYPE")}
            assert told == {each.name: each.kind for each in METRICS if each.name not in ABSENT}
            by_name = {each.name: each for each in METRICS}
            for family in text_string_to_metric_families(body):
                name = family.name + ("_total" if family.type == "counter" else "")
                for sample in family.samples:
                    assert tuple(key for key in sample.labels if key != "le") == by_name[name].labels

    with asyncio.Runner(loop_factory=metered_loop) as runner:
        runner.run(run())


def test_the_page_cache_and_doubtful_flushes_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        config = observed_config(Path("/dev/shm") / tmp_path.name, pybroker_durability="acks")
        async with running(config) as daemon:
            directory = str(daemon.logs.directories[0].path)
            found = await scrape(daemon)
            assert found["pybroker_log_dir_flush_doubtful", directory, "dropped"] == 1

    try:
        asyncio.run(run())
    finally:
        shutil.rmtree(Path("/dev/shm") / tmp_path.name)
    assert "may go with the power" in caplog.text


def test_scrapes_at_the_same_time_are_all_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beside clients that ask and go away."""

    async def leave(daemon: Daemon, number: int) -> None:
        assert daemon.observer.address is not None
        _, writer = await asyncio.open_connection(*daemon.observer.address)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.001 * number)
        writer.transport.abort()

    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon:
            for _ in range(20):
                asked = [get(daemon, path) for path in 5 * ("/metrics", "/ready")]
                left = [leave(daemon, number) for number in range(5)]
                answers, _ = await asyncio.gather(asyncio.gather(*asked), asyncio.gather(*left))
                assert {status for status, _ in answers} == {200}

    asyncio.run(run())
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_scrape_keeps_to_the_measurement_that_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another scrape begins the next one after the first has ended and before the first scrape goes on."""
    second: list[asyncio.Task[Any]] = []
    wait = asyncio.wait

    async def interrupted(tasks: Any, **options: Any) -> Any:
        found = await wait(tasks, **options)
        if not second:
            second.append(asyncio.create_task(measured.observer._free_bytes([tmp_path])))
            await asyncio.sleep(0)
        return found

    async def run() -> None:
        nonlocal measured
        async with running(observed_config(tmp_path / "data")) as measured:
            monkeypatch.setattr(observer.asyncio, "wait", interrupted)
            assert (await measured.observer._free_bytes([tmp_path])).keys() == {tmp_path}
            assert (await second[0]).keys() == {tmp_path}
            monkeypatch.undo()

    measured: Any = None
    asyncio.run(run())


def test_health_and_readiness(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon:
            status, alive = await get_json(daemon, "/health")
            assert (status, alive["status"], alive["reasons"]) == (200, "alive", [])
            assert alive["control_loop_ms"] >= 0
            assert alive["data_plane_ms"] >= 0
            status, ready = await get_json(daemon, "/ready")
            assert (status, ready["status"], ready["phase"]) == (200, "ready", "serving")
            daemon.observed.phase, daemon.observed.assigned_count = "recovering", 7
            status, ready = await get_json(daemon, "/ready")
            assert (status, ready["status"]) == (503, "not ready")
            assert ready["reasons"] == [f"recovery: {len(daemon.logs.logs)} of 7 logs are open"]
            daemon.observed.phase = "serving"
            daemon._fail("the disk is gone")
            status, alive = await get_json(daemon, "/health")
            assert (status, alive["reasons"]) == (503, ["the broker cannot go on: the disk is gone"])

    asyncio.run(run())


def test_a_log_dir_below_its_reserve_is_told_and_is_no_reason_to_start_the_broker_anew(tmp_path: Path) -> None:
    async def run(reserve_bytes: int, is_low: bool) -> None:
        config = observed_config(tmp_path, pybroker_log_dir_reserve_bytes=str(reserve_bytes))
        async with running(config) as daemon:
            for path in ("/health", "/ready"):
                status, found = await get_json(daemon, path)
                assert (status, found["log_dirs_below_reserve"]) == (200, [str(tmp_path)] if is_low else [])
            values = await scrape(daemon)
            assert values["pybroker_log_dir_below_reserve", str(tmp_path)] == is_low
            assert values["pybroker_log_dir_reserve_bytes", str(tmp_path)] == reserve_bytes

    asyncio.run(run(1 << 60, True))
    asyncio.run(run(0, False))


def test_a_control_loop_that_stands_still_is_told_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Health.__init__, "__defaults__", (0.05,))
    monkeypatch.setattr(observer, "_SNAPSHOT_TIMEOUT_S", 0.05)
    # The data plane does turn, however late on a busy machine.
    monkeypatch.setattr(health, "ping", lambda native, _: ping(native, 60_000))
    answers: list[tuple[int, str]] = []

    def ask(daemon: Daemon, over: threading.Event) -> None:
        for path in ("/health", "/metrics"):
            answers.append(asyncio.run(get(daemon, path)))
        over.set()

    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon:
            over = threading.Event()
            threading.Thread(target=ask, args=(daemon, over)).start()
            assert over.wait(60), "while this loop does nothing else"

    asyncio.run(run())
    (health_status, alive), (metrics_status, metrics) = answers
    assert health_status == 503
    assert json.loads(alive)["reasons"] == ["the control loop has not turned for 0.05 s"]
    assert metrics_status == 503
    assert "the control loop has not answered" in metrics


def test_events_are_told_with_their_reasons(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with (
            running(observed_config(tmp_path, log_segment_bytes="1048576")) as daemon,
            connected(daemon) as client,
        ):
            await client.make_topic("t")
            for _ in range(3):
                assert (await client.produce("t", b"x" * 600_000)).error_code == 0
            deadline = time.monotonic() + 60
            while len(found := (await get_json(daemon, "/events?kind=roll"))[1]["events"]) < 2:
                assert time.monotonic() < deadline
            assert found[0]["text"] == "t-0 begins a segment at offset 1: segment.bytes is reached"
            newer = await get_json(daemon, f"/events?after={found[0]['number']}&limit=1")
            assert newer == (200, {"events": [found[1]]})
            assert (await get(daemon, "/events?kind=other"))[0] == 400
            for number in ("-1", "9" * 5000):
                assert (await get(daemon, f"/events?limit={number}"))[0] == 400
                assert (await get(daemon, f"/events?after={number}"))[0] == 400

    asyncio.run(run())


def test_a_port_that_was_asked_for_has_to_be_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(observed_config(tmp_path / "one")) as first:
            taken = f"127.0.0.1:{first.observer.address[1]}"
            config = config_for(tmp_path / "two", pybroker_metrics_listener=taken)
            with pytest.raises(OSError, match=r"pybroker\.metrics\.listener"):
                await Daemon(config, load_profile(config)).start()
            # The same as a default costs nothing but the metrics.
            is_set = BrokerConfig.is_set
            monkeypatch.setattr(BrokerConfig, "is_set", lambda self, name: name != LISTENER_KEY and is_set(self, name))
            async with running(config) as second:
                assert second.observer.address is None
                assert "in use" in second.observer.refusal
                assert " metrics=" not in ready_line(second, 1)

    asyncio.run(run())


@pytest.mark.parametrize("address", ["9404", "localhost", ":9404", "localhost:65536", "localhost:http"])
def test_addresses_that_are_none_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        config_for(tmp_path, pybroker_metrics_listener=address)


def test_a_file_system_that_does_not_answer_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()
    statvfs = os.statvfs

    def stuck(path: Any) -> os.statvfs_result:
        asked.set()
        assert answers.wait(60)
        return statvfs(path)

    async def run() -> None:
        async with running(observed_config(tmp_path)) as daemon:
            monkeypatch.setattr(os, "statvfs", stuck)
            scraping = asyncio.create_task(get(daemon, "/metrics"))
            try:
                await asyncio.to_thread(asked.wait, 60)
                async with asyncio.timeout(30):
                    assert (await get(daemon, "/health"))[0] == 200
                    status, body = await scraping
                assert (status, "pybroker_log_dir_free_bytes" in body) == (200, False)
            finally:
                answers.set()
            assert "pybroker_log_dir_free_bytes" in (await get(daemon, "/metrics"))[1]

    asyncio.run(run())
