"""Which directories are strays, which go, and when the disk knows how far metadata were applied."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from replica_setup import TOPIC_ID, refused, setup

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication import departures
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.logs.log_manager import LogManager
from tests.harness.waiting import until_async


def names(log_dir: Path) -> list[str]:
    """Directories, without what makes those unique that were set aside."""
    return sorted(re.sub(r"\.[0-9a-f]{32}", "", each.name) for each in log_dir.iterdir() if each.is_dir())


def test_only_what_nobody_is_at_is_a_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "_PATIENCE_S", 0.02)
    (tmp_path / "t-1" / "00000000000000000000.log").mkdir(parents=True)
    (tmp_path / "t-2").mkdir()
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create(partition_count=2)
            refused(lambda: made.replicas.state("t", 1), ErrorCode.KAFKA_STORAGE_ERROR)
            log = made.logs.logs["t", 0]
            reading = asyncio.create_task(log.run(lambda: slow.wait(120)))
            await asyncio.sleep(0.01)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            assert ("t", 0) not in made.logs.logs, "but its directory is still there"
            await made.replicas.set_strays_aside()
            assert names(tmp_path) == ["t-0", "t-1", "t-2-stray"]
            slow.set()
            await reading
            await until_async(lambda: names(tmp_path) == ["t-0-delete", "t-1", "t-2-stray"])

    asyncio.run(run())


def test_nothing_is_a_stray_for_metadata_that_go_less_far_than_before(tmp_path: Path) -> None:
    """As of controllers that lost theirs; later ones of the same cluster may say so."""
    (tmp_path / "t-7").mkdir()

    async def run() -> None:
        async with setup(tmp_path) as made:
            (directory,) = made.logs.directories
            await made.publish()
            image = made.replicas._image
            assert image is not None
            end = AppliedMetadata(image.cluster_id, image.provenance.end_offset, image.provenance.epoch)
            for before in (
                end.replace(end_offset=end.end_offset + 1),
                end.replace(epoch=end.epoch + 1),
                end.replace(cluster_id="another"),
            ):
                directory.applied = before
                await made.replicas.set_strays_aside()
                assert names(tmp_path) == ["t-7"]
                assert directory.applied == before, "it is not forgotten how far they went"
            directory.applied = end
            await made.replicas.set_strays_aside()
            assert names(tmp_path) == ["t-7-stray"]

    asyncio.run(run())


def test_how_far_metadata_go_is_on_the_disk_before_directories_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            seen: list[tuple[str, int]] = []
            manager = type(made.logs)
            for name in ("open", "delete"):
                original = getattr(manager, name)

                def noting(logs: LogManager, *given: Any, _call: Any = original, _name: str = name, **more: Any) -> Any:
                    recorded = AppliedMetadata.read(tmp_path)
                    seen.append((_name, -1 if recorded is None else recorded.end_offset))
                    return _call(logs, *given, **more)

                monkeypatch.setattr(manager, name, noting)
            await made.create()
            opened_at = made.replicas._image.provenance.end_offset  # type: ignore[union-attr]
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            deleted_at = made.replicas._image.provenance.end_offset  # type: ignore[union-attr]
            assert seen == [("open", opened_at), ("delete", deleted_at)]

    asyncio.run(run())


def test_what_is_published_while_strays_are_set_aside_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "left").touch()
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.publish()
            threads = [made.logs.executor.submit(slow.wait, 60) for _ in range(4)]
            setting_aside = asyncio.create_task(made.replicas.set_strays_aside())
            await asyncio.sleep(0.01)
            creating = asyncio.create_task(made.create())
            await asyncio.sleep(0.01)
            slow.set()
            await asyncio.gather(setting_aside, creating)
            assert all(thread.result() for thread in threads)
            assert names(tmp_path) == ["t-0", "t-0-stray"]
            assert not (tmp_path / "t-0" / "left").exists()
            assert await made.append() == 0

    asyncio.run(run())


def test_deleting_a_topic_deletes_the_files_of_partitions_that_are_offline(tmp_path: Path) -> None:
    segment = tmp_path / "t-0" / f"{0:020d}.log"

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
        segment.unlink()
        segment.mkdir()
        async with setup(tmp_path) as made:
            await made.create()
            assert made.replicas.offline_count == 1
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            assert made.replicas.offline_count == 0
            assert not (tmp_path / "t-0").exists()

    asyncio.run(run())
