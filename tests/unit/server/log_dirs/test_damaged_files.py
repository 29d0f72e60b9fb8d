"""Every kind of file in a log dir, damaged or replaced by something else, and the start after it.

Nothing keeps the start waiting. Files that can be derived are made anew; of all else the broker says which file is at
fault.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest
from daemon_client import config_for, connected, running

from pybroker.metadata.errors import MetadataError
from pybroker.storage.errors import StorageError
from pybroker.storage.files import regular_file
from pybroker.storage.files.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN
from tests.harness.damage import harm
from tests.harness.damage.files import kinds

TOPIC = "t"
#: The kinds of files that the log dir here has, as `kinds` finds them.
KINDS = (
    ".kafka_cleanshutdown",
    ".lock",
    ".pybroker_applied_metadata",
    ".pybroker_format",
    ".pybroker_log_ends",
    ".pybroker_topic_ids",
    "bootstrap.checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    "metadata: .checkpoint",
    "metadata: .index",
    "metadata: .log",
    "metadata: .timeindex",
    "metadata: leader-epoch-checkpoint",
    "metadata: partition.metadata",
    "metadata: quorum-state",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "topic: .index",
    "topic: .log",
    "topic: .snapshot",
    "topic: .timeindex",
    "topic: leader-epoch-checkpoint",
    "topic: partition.metadata",
)
#: Files whose content is nowhere else. The tests of lost records and of lost metadata look at these.
NOT_DERIVED = ("topic: .log", "metadata: .log", ".pybroker_format")
#: Of a segment: a start says which, and not each of the files.
OF_SEGMENT = ("topic: .index", "topic: .timeindex", "topic: .snapshot")
#: Damage to them is told when they are read: the others are for Apache Kafka, or say nothing that is missed.
TOLD = (
    "topic: partition.metadata",
    "metadata: .checkpoint",
    "metadata: quorum-state",
    "metadata: leader-epoch-checkpoint",
    "metadata: partition.metadata",
    "meta.properties",
    ".pybroker_applied_metadata",
    ".pybroker_log_ends",
    ".pybroker_topic_ids",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
_START_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir of a broker that ran twice, with two records, as after a kill."""
    root = tmp_path_factory.mktemp("damaged") / "d"

    async def fill() -> None:
        for number in range(2):
            async with running(config_for(root)) as daemon, connected(daemon) as client:
                if number == 0:
                    await client.make_topic(TOPIC)
                assert (await client.produce(TOPIC, b"x" * 100)).error_code == 0

    asyncio.run(fill())
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "d")


def file_of(root: Path, kind: str) -> Path:
    path = kinds(root, TOPIC, newest=True)[kind]
    path.chmod(0o644)
    return path


def end_after_start(root: Path) -> int:
    """The end of the partition, -1 when it is offline. StorageError, MetadataError or OSError when it cannot start."""

    async def run() -> int:
        async with asyncio.timeout(_START_TIMEOUT_S):
            async with running(config_for(root)) as daemon, connected(daemon) as client:
                if daemon.services.replicas.offline_count > 0:
                    return -1
                return (await client.offset(TOPIC, -1)).offset

    return asyncio.run(run())


def test_all_kinds_of_files_are_looked_at(root: Path) -> None:
    directories = {"topic: directory", "metadata: directory"}
    assert set(kinds(root, TOPIC)) == {*KINDS, *directories}


@pytest.mark.parametrize("how", harm.KIND_HARMS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_named_and_not_waited_for(
    root: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(root, kind)
    (root / CLEAN_SHUTDOWN).unlink(missing_ok=kind != CLEAN_SHUTDOWN)
    if kind == CLEAN_SHUTDOWN:
        path.touch()
    harm.KIND_HARMS[how](path)
    try:
        end, said = end_after_start(root), caplog.text
    except (StorageError, MetadataError, OSError) as error:
        end, said = -1, str(error)
    if end < 0 or kind in OF_SEGMENT:
        assert str(path.parent) in said
        assert "Expecting value" not in said
    if end < 0 and kind not in (*OF_SEGMENT, "topic: leader-epoch-checkpoint"):
        assert str(path) in said
    assert end in (-1, 2)
    assert os.path.lexists(path), "nobody removes what may be of use"


@pytest.mark.parametrize("how", [*harm.CONTENT_HARMS, harm.DELETED])
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in NOT_DERIVED])
def test_derived_files_are_made_anew(root: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    path = file_of(root, kind)
    if kind != CLEAN_SHUTDOWN:
        (root / CLEAN_SHUTDOWN).unlink()
    harm.ALL_HARMS[how](path)
    if how == harm.FLIPPED and kind == "meta.properties":
        with pytest.raises(StorageError, match="one of the files was changed"):
            end_after_start(root)
        return
    assert end_after_start(root) == 2
    if kind in TOLD and how in (harm.NULS, harm.JUNK, harm.TRUNCATED):
        assert path.name in caplog.text
    caplog.clear()
    assert end_after_start(root) == 2
    assert path.name not in caplog.text, "the next start finds it whole"
    assert not list(root.glob("*-stray"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ELOOP])
def test_a_checkpoint_that_nobody_may_read_is_named(root: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "recovery-point-offset-checkpoint"
    opened = os.open

    def refuse(place: object, *arguments: int, **keywords: object) -> int:
        if str(place) == str(path):
            raise OSError(number, os.strerror(number), str(path))
        return opened(place, *arguments, **keywords)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(regular_file.os, "open", refuse)
    with pytest.raises(StorageError, match=r"none of log.dirs can be used: .*recovery-point-offset-checkpoint"):
        end_after_start(root)


def test_the_other_log_dirs_serve_when_a_checkpoint_is_a_directory(tmp_path: Path) -> None:
    async def run() -> None:
        settings = config_for(Path(f"{tmp_path / 'a'},{tmp_path / 'b'}"))
        async with running(settings):
            pass
        harm.make_directory(tmp_path / "b" / "recovery-point-offset-checkpoint")
        async with running(settings) as daemon, connected(daemon) as client:
            assert [each.path.name for each in daemon.logs.live] == ["a"]
            await client.make_topic(TOPIC)
            assert (await client.produce(TOPIC, b"x")).error_code == 0

    asyncio.run(run())
