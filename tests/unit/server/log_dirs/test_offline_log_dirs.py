"""Log dirs that fail, at the start or later: what lies there is refused, the rest is served."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.config.broker import BrokerConfig
from pybroker.native.broker import OFFLINE_SYNC, OFFLINE_WRITE
from pybroker.native.errors import NativeError, SyncFailed
from pybroker.native.metrics import read_stats
from pybroker.native.partition import NativePartition
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication import departures, log_repair
from pybroker.server.daemon import Daemon
from pybroker.storage.errors import StorageError
from pybroker.storage.logs.log_failures import Consequence, consequence
from tests.harness.waiting import until_async

OK, OFFLINE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


def config(tmp_path: Path, names: str = "ab", **overrides: str) -> BrokerConfig:
    return config_for(tmp_path, log_dirs=",".join(str(tmp_path / name) for name in names), **overrides)


def place_of(daemon: Daemon, topic: str) -> Path:
    return daemon.logs.logs[topic, 0].path


async def make_topics(client: Client, daemon: Daemon, count: int = 2) -> dict[str, str]:
    """The names of some topics by the name of the log dir they lie in."""
    for number in range(count):
        await client.make_topic(f"t{number}")
        assert (await client.produce(f"t{number}", b"x")).error_code == OK
    return {place_of(daemon, f"t{number}").parent.name: f"t{number}" for number in range(count)}


async def produced(client: Client, topic: str) -> ErrorCode:
    return ErrorCode((await client.produce(topic, b"y")).error_code)


async def leadership(client: Client, topic: str) -> tuple[int, int]:
    """(error code, leader) that Metadata tells of partition 0."""
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    (row,) = (await client.call(asked, 12)).topics
    return row.partitions[0].error_code, row.partitions[0].leader_id


NOT_LED = (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def cordon(client: Client, *paths: Path) -> None:
    """Set cordoned.log.dirs while the broker runs."""
    request = m.IncrementalAlterConfigsRequest
    value = ",".join(map(str, paths))
    setting = request.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[setting])
    answer = await client.call(request(resources=[resource]), 1)
    assert answer.responses[0].error_code == OK, answer.responses[0].error_message


async def described(client: Client) -> dict[str, int]:
    """The error code of every log dir, by its name."""
    answer = await client.call(m.DescribeLogDirsRequest(topics=None), 4)
    return {Path(each.log_dir).name: each.error_code for each in answer.results}


@pytest.mark.parametrize("what", [OFFLINE_WRITE, OFFLINE_SYNC])
def test_a_dir_whose_disk_fails_takes_only_its_partitions_along(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: int
) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
            log = daemon.logs.logs[topics["b"], 0]
            for _ in range(2):
                await daemon.services.replicas.on_offline(log.tag, what, -errno.EIO)
            assert await produced(client, topics["b"]) == OFFLINE
            assert (await client.fetch(topics["b"], 0)).error_code == OFFLINE
            assert (await client.offset(topics["b"], -1)).error_code == OFFLINE
            assert await produced(client, topics["a"]) == OK
            assert await described(client) == {"a": OK, "b": OFFLINE}
            async with asyncio.timeout(60):  # the controller is told behind the scenes
                while (told := await leadership(client, topics["b"])) != NOT_LED:
                    assert told == (OK, 1)
                    await asyncio.sleep(0.01)
            assert await leadership(client, topics["a"]) == (OK, 1)
            # What is new goes where it can be kept.
            await client.make_topic("new")
            assert await produced(client, "new") == OK
            assert place_of(daemon, "new").parent.name == "a"
        assert caplog.text.count("failed, and what lies there is offline") == 1
        assert f"log dir {tmp_path / 'b'} failed" in caplog.text and "Input/output error" in caplog.text
        assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
        assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
        # A new start tries it again.
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert await described(client) == {"a": OK, "b": OK}
            assert await leadership(client, topics["b"]) == (OK, 1)
            assert (await client.produce(topics["b"], b"z")).base_offset == 1

    asyncio.run(run())


def test_who_waits_for_records_hears_that_their_dir_has_failed(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
            log = daemon.logs.logs[topics["b"], 0]
            async with contextlib.AsyncExitStack() as stack:
                waiting = []
                for _ in range(8):
                    reader = await stack.enter_async_context(connected(daemon))
                    waiting.append(asyncio.ensure_future(reader.fetch(topics["b"], 1, wait_ms=50_000)))
                for _ in range(12_000):
                    if read_stats(daemon.native).delayed_fetches == len(waiting):
                        break
                    await asyncio.sleep(0.005)
                await daemon.services.replicas.on_offline(log.tag, OFFLINE_SYNC, -errno.EIO)
                assert [row.error_code for row in await asyncio.gather(*waiting)] == [OFFLINE] * len(waiting)

    asyncio.run(run())


def test_a_topic_takes_the_name_of_one_whose_log_is_still_being_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)
    monkeypatch.setattr(departures, "_PATIENCE_S", 0.1)

    async def run() -> None:
        async with running(config(tmp_path, "a", num_partitions="2")) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            log = daemon.logs.logs["t", 0]
            log.hold()  # as a call does that waits for a slow disk
            try:
                request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")])
                assert (await client.call(request, 6)).responses[0].error_code == OK
                async with asyncio.timeout(60):  # the answer has no patience with a thread that gets no CPU
                    while (refusal := await produced(client, "t")) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        assert refusal == OK
                        await asyncio.sleep(0.01)
                await client.make_topic("t")
            finally:
                log.release()
            async with asyncio.timeout(60):
                for index in range(2):
                    while (row := await client.produce("t", b"x", index=index)).error_code != OK:
                        assert row.error_code == OFFLINE
                        await asyncio.sleep(0.01)
                    assert row.base_offset == 0

    asyncio.run(run())


def test_a_failed_sync_ends_the_log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(native: NativePartition) -> None:
        raise SyncFailed(-errno.ENOSPC)

    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
            logs = daemon.logs
            log = logs.logs[topics["b"], 0]
            monkeypatch.setattr(NativePartition, "sync", fail)
            with pytest.raises(SyncFailed):
                await log.run(log.native.sync)
            logs.failures.report(log, "a sync", SyncFailed(-errno.ENOSPC))
            assert await produced(client, topics["b"]) == OFFLINE
            assert await produced(client, topics["a"]) == OK
            monkeypatch.undo()

    asyncio.run(run())


@pytest.mark.parametrize("found_by", ["a fetch", "upkeep"])
def test_a_file_that_was_cut_is_damage_and_its_partition_goes_on(
    tmp_path: Path, found_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            await client.make_topic("cut")
            for _ in range(3):
                assert await produced(client, "cut") == OK
            log = daemon.logs.logs["cut", 0]
            path = place_of(daemon, "cut") / "00000000000000000000.log"
            os.truncate(path, path.stat().st_size // 2)
            if found_by == "upkeep":
                await log.run(log.native.upkeep, 1, 0)
            else:
                assert (await client.fetch("cut", 1)).error_code == OFFLINE, "the look at the files comes after it"
                await until_async(lambda: len(log.native.segments()) == 2)
            await until_async(lambda: f"cut-0/{path.name} has " in caplog.text)
            for offset in (1, 2):
                assert (await client.fetch("cut", offset)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert (await client.fetch("cut", 0)).error_code == OK
            assert await produced(client, "cut") == OK
            assert (await client.fetch("cut", 3)).error_code == OK
            assert (await client.offset("cut", -1)).offset == 4, "no offset is given out again"
            assert not daemon.observed.events.newest(10, kind="offline")
        assert "Fetches of offsets 1 to 2 are answered CORRUPT_MESSAGE" in caplog.text

    asyncio.run(run())


def test_a_file_that_was_removed_ends_its_partition_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            for topic in ("removed", "whole"):
                await client.make_topic(topic)
                assert await produced(client, topic) == OK
            name = "00000000000000000000.log"
            os.unlink(place_of(daemon, "removed") / name)
            log = daemon.logs.logs["removed", 0]
            with pytest.raises(NativeError) as failure:
                await log.run(log.native.upkeep, 1, 0)
            daemon.logs.failures.report(log, "upkeep", failure.value)
            assert await produced(client, "removed") == OFFLINE
            assert await produced(client, "whole") == OK
            assert await described(client) == {"a": OK}
            events = daemon.observed.events.newest(10, kind="offline")
            assert [each.fields for each in events] == [{"partition": "removed-0"}]
        assert f"removed-0/{name} is gone" in caplog.text

    asyncio.run(run())


def test_a_dir_that_vanished_is_told_from_files_that_did(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
            shutil.rmtree(tmp_path / "b")
            log = daemon.logs.logs[topics["b"], 0]
            await daemon.services.replicas.on_offline(log.tag, OFFLINE_WRITE, -errno.ESTALE)
            assert await described(client) == {"a": OK, "b": OFFLINE}

    asyncio.run(run())


@pytest.mark.parametrize("names", ["a", "ab"])
def test_the_broker_stops_without_its_metadata_or_any_log_dir(tmp_path: Path, names: str) -> None:
    async def run() -> None:
        async with running(config(tmp_path, names)) as daemon:
            logs = daemon.logs
            logs.failures.fail(logs.directories[0], "of a test")
            reason = await asyncio.wait_for(daemon.failed, 60)
            assert f"log dir {tmp_path / 'a'}, which has the metadata log, cannot be used: of a test" in reason

    asyncio.run(run())


def test_a_dir_that_cannot_be_used_at_the_start_leaves_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
        (tmp_path / "b").rename(tmp_path / "away")
        (tmp_path / "b").write_text("no directory")
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert await described(client) == {"a": OK, "b": OFFLINE}
            assert await produced(client, topics["a"]) == OK
            assert await produced(client, topics["b"]) == OFFLINE
            assert await leadership(client, topics["b"]) == NOT_LED
            assert not list((tmp_path / "a").glob(f"{topics['b']}-*")), "an empty one in its place would lose all"
        (tmp_path / "b").unlink()
        (tmp_path / "away").rename(tmp_path / "b")
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert (await client.produce(topics["b"], b"z")).base_offset == 1
        # Without the one that has the metadata log there is no start.
        (tmp_path / "a").rename(tmp_path / "away")
        (tmp_path / "a").write_text("no directory")
        daemon = Daemon(config(tmp_path), daemon.profile)
        with pytest.raises(OSError, match="exists"):
            await daemon.start()

    asyncio.run(run())


def test_an_empty_dir_in_the_place_of_one_that_is_not_mounted_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
        (tmp_path / "b").rename(tmp_path / "away")
        (tmp_path / "b").mkdir()
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert await produced(client, topics["a"]) == OK
            assert await produced(client, topics["b"]) == OFFLINE
            await client.make_topic("new")
            assert place_of(daemon, "new").parent.name == "b"
        assert "none of log.dirs is that one" in caplog.text
        shutil.rmtree(tmp_path / "b")
        (tmp_path / "away").rename(tmp_path / "b")
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert (await client.produce(topics["b"], b"z")).base_offset == 1

    asyncio.run(run())


def test_a_log_that_was_carried_to_another_dir_is_led(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            topics = await make_topics(client, daemon)
        name = f"{topics['b']}-0"
        (tmp_path / "b" / name).rename(tmp_path / "a" / name)
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            assert await leadership(client, topics["b"]) == (OK, 1)
            assert (await client.produce(topics["b"], b"z")).base_offset == 1

    asyncio.run(run())


def test_a_dir_another_broker_has_leaves_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path)) as first, connected(first) as client:
            await make_topics(client, first)
        (tmp_path / "c").mkdir()
        shutil.copytree(tmp_path / "a", tmp_path / "c", dirs_exist_ok=True)
        async with (
            running(config(tmp_path, "a")),
            running(config(tmp_path, "ca")) as second,
            connected(second) as client,
        ):
            assert await described(client) == {"c": OK, "a": OFFLINE}

    asyncio.run(run())


def test_a_new_cluster_is_not_begun_beside_a_dir_that_may_have_one(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "b").write_text("no directory")
        async with running(config_for(tmp_path / "other")) as daemon:
            pass
        daemon = Daemon(config(tmp_path), daemon.profile)
        with pytest.raises(StorageError, match="may belong to a cluster"):
            await daemon.start()

    asyncio.run(run())


def test_what_could_not_be_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)
    full = True

    async def run() -> None:
        nonlocal full
        opened = NativePartition.__init__

        def open_unless_full(self: NativePartition, *args: Any, **kwargs: Any) -> None:
            if full:
                raise NativeError(-errno.ENOSPC)
            opened(self, *args, **kwargs)

        monkeypatch.setattr(NativePartition, "__init__", open_unless_full)
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert await produced(client, "t") == OFFLINE
            await asyncio.sleep(0.1)
            assert await produced(client, "t") == OFFLINE
            full = False
            async with asyncio.timeout(60):
                while (code := await produced(client, "t")) != OK:
                    assert code == OFFLINE
                    await asyncio.sleep(0.01)
            assert await described(client) == {"a": OK}
            # Nothing is left of it when the topic goes while it is refused.
            full = True
            await client.make_topic("gone")
            assert await produced(client, "gone") == OFFLINE
            deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="gone")]
            request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
            answer = await client.call(request, 6)
            assert answer.responses[0].error_code == OK
            assert await produced(client, "gone") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert caplog.text.count("partition t-0 cannot be opened") == 1
        assert "t-0 is open now" in caplog.text

    asyncio.run(run())


def test_a_log_that_found_no_memory_to_be_written_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)

    async def run() -> None:
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert await produced(client, "t") == OK
            log = daemon.logs.logs["t", 0]
            await daemon.services.replicas.on_offline(log.tag, OFFLINE_SYNC, -errno.ENOMEM)
            assert await produced(client, "t") == OFFLINE
            async with asyncio.timeout(60):
                while (row := await client.produce("t", b"z")).error_code != OK:
                    assert row.error_code == OFFLINE
                    await asyncio.sleep(0.01)
            assert row.base_offset == 1
            assert daemon.logs.logs["t", 0] is not log
            assert await described(client) == {"a": OK}

    asyncio.run(run())


def test_new_partitions_stay_out_of_cordoned_dirs(tmp_path: Path) -> None:
    async def run() -> None:
        cordoned = config(tmp_path, cordoned_log_dirs=str(tmp_path / "b"))
        async with running(cordoned) as daemon, connected(daemon) as client:
            for number in range(3):
                await client.make_topic(f"t{number}")
            assert not list((tmp_path / "b").glob("t*"))
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("free")
            assert place_of(daemon, "free").parent.name == "b"
            await cordon(client, tmp_path / "b")
            answer = await client.call(m.DescribeLogDirsRequest(topics=None), 5)
            assert {Path(each.log_dir).name: each.is_cordoned for each in answer.results} == {"a": False, "b": True}
            for number in range(3):
                await client.make_topic(f"more{number}")
                assert place_of(daemon, f"more{number}").parent.name == "a"
            await cordon(client, tmp_path / "a", tmp_path / "b")
            await client.ask_for_topic("none")
            await daemon.services.topic_creation.finished()
            assert "INVALID_REPLICATION_FACTOR" in (daemon.services.topic_creation.failure("none") or "")
            assert ("none", 0) not in daemon.logs.logs

    asyncio.run(run())


def test_what_failures_mean() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.EBUSY):
        assert consequence(NativeError(-number)) is Consequence.NOTHING
        assert consequence(OSError(number, "x")) is Consequence.NOTHING
    for number in (errno.ESTALE, errno.ENODATA, errno.ENOENT, errno.EACCES, errno.EMEDIUMTYPE, errno.ELOOP):
        assert consequence(NativeError(-number)) is Consequence.PARTITION
    for number in (errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ETIMEDOUT):
        assert consequence(NativeError(-number)) is Consequence.DIRECTORY
    assert consequence(NativeError(ErrorCode.CORRUPT_MESSAGE)) is Consequence.NOTHING
    assert consequence(SyncFailed(-errno.ENOSPC)) is Consequence.DIRECTORY
    assert consequence(SyncFailed(-errno.EMFILE)) is Consequence.NOTHING


def test_a_directory_that_somebody_removed_costs_only_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config(tmp_path, "a")) as daemon, connected(daemon) as client:
            topics = [f"t{number}" for number in range(2)]
            for topic in topics:
                await client.make_topic(topic)
            shutil.rmtree(tmp_path / "a" / "t0-0")
            deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="t0")]
            request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
            assert (await client.call(request, 6)).responses[0].error_code == OK
            assert await produced(client, "t1") == OK
            assert await described(client) == {"a": OK}

    asyncio.run(run())
