"""Starts with a metadata log that was emptied, cut, damaged or replaced; and the ways out."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_client import config_for, connected, running

from pybroker.cli.main import main
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.log_files import PARTITION_DIRECTORY, list_segments, list_snapshots
from pybroker.storage.errors import StorageError
from pybroker.storage.files.applied_metadata import FILE_NAME as APPLIED
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN
from tests.harness.damage import harm
from tests.harness.waiting import until_async

TOPICS = ("alpha", "beta", "gamma")


async def fill(root: Path, *topics: str) -> None:
    """A broker that has these topics with a record each, stopped in order."""
    async with running(config_for(root)) as daemon, connected(daemon) as client:
        for topic in topics:
            await client.make_topic(topic)
            assert (await client.produce(topic, topic.encode())).error_code == 0


async def ends(root: Path, *topics: str) -> list[int]:
    """The end offsets of these topics in a broker that is started."""
    async with running(config_for(root)) as daemon, connected(daemon) as client:
        return [(await client.offset(topic, -1)).offset for topic in topics]


def filled(tmp_path: Path) -> Path:
    root = tmp_path / "d"
    asyncio.run(fill(root, *TOPICS))
    return root


def partitions(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir())


def refused(root: Path) -> str:
    """Why it does not start; nothing may be renamed or cut then."""
    before = {entry: entry.stat().st_size for entry in (root / PARTITION_DIRECTORY).glob("*")}
    names = partitions(root)
    with pytest.raises((MetadataError, StorageError)) as caught:
        asyncio.run(ends(root))
    assert partitions(root) == names
    assert {entry: entry.stat().st_size for entry in (root / PARTITION_DIRECTORY).glob("*")} == before
    return str(caught.value)


def cli(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def empty_log(directory: Path) -> None:
    for segment in list_segments(directory):
        harm.empty(segment.path)


def delete_log(directory: Path) -> None:
    for segment in list_segments(directory):
        segment.path.unlink()


def delete_all_files(directory: Path) -> None:
    for entry in directory.iterdir():
        entry.unlink()


def cut_last_batches(directory: Path) -> None:
    harm.truncate(list_segments(directory)[-1].path)


def flip_last_batch(directory: Path) -> None:
    harm.flip(list_segments(directory)[-1].path, -1)


def zero_log(directory: Path) -> None:
    for segment in list_segments(directory):
        harm.zero(segment.path)


LOSSES: dict[str, Callable[[Path], None]] = {
    "emptied": empty_log,
    "deleted": delete_log,
    "all files deleted": delete_all_files,
    "directory deleted": shutil.rmtree,
    "cut": cut_last_batches,
    "last batch flipped": flip_last_batch,
    "zeroed": zero_log,
}


@pytest.mark.parametrize("was_killed", [False, True], ids=["after a clean stop", "after a kill"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_metadata_log_that_lost_records_is_refused_and_nothing_set_aside(
    tmp_path: Path, loss: str, was_killed: bool
) -> None:
    root = filled(tmp_path)
    if was_killed:
        (root / CLEAN_SHUTDOWN).unlink()
    LOSSES[loss](root / PARTITION_DIRECTORY)
    if loss == "directory deleted":
        with pytest.raises(StorageError, match="has no __cluster_metadata-0"):
            asyncio.run(ends(root))
    else:
        text = refused(root)
        assert str(root / PARTITION_DIRECTORY) in text
        assert "backup" in text
    assert partitions(root)[-3:] == ["alpha-0", "beta-0", "gamma-0"]


@pytest.mark.parametrize("loss", ["emptied", "deleted", "all files deleted"])
def test_so_it_is_where_nothing_says_how_far_it_went(tmp_path: Path, loss: str) -> None:
    """A log dir of Apache Kafka, or of an older version."""
    root = filled(tmp_path)
    (root / APPLIED).unlink()
    LOSSES[loss](root / PARTITION_DIRECTORY)
    assert "is empty, but" in refused(root)


def test_an_older_backup_is_refused_and_the_newer_one_accepted(tmp_path: Path) -> None:
    root = tmp_path / "d"
    asyncio.run(fill(root, "alpha"))
    shutil.copytree(root / PARTITION_DIRECTORY, tmp_path / "backup")
    asyncio.run(fill(root, "beta"))
    shutil.move(root / PARTITION_DIRECTORY, tmp_path / "newer")
    shutil.copytree(tmp_path / "backup", root / PARTITION_DIRECTORY)
    assert "had applied it up to offset" in refused(root)
    shutil.rmtree(root / PARTITION_DIRECTORY)
    shutil.move(tmp_path / "newer", root / PARTITION_DIRECTORY)
    assert asyncio.run(ends(root, "alpha", "beta")) == [1, 1]


def middle_batch(root: Path) -> tuple[Path, int]:
    """A segment of the metadata log, and a place inside of a batch that others follow."""
    segment = list_segments(root / PARTITION_DIRECTORY)[-1].path
    return segment, segment.stat().st_size // 2


@pytest.mark.parametrize("was_killed", [False, True], ids=["after a clean stop", "after a kill"])
def test_a_damaged_batch_before_a_whole_one_is_no_torn_tail(tmp_path: Path, was_killed: bool) -> None:
    root = filled(tmp_path)
    if was_killed:
        (root / CLEAN_SHUTDOWN).unlink()
    segment, position = middle_batch(root)
    harm.flip(segment, position)
    text = refused(root)
    for part in (str(segment), "is due", "follows whole at position", "log repair", "--metadata skip"):
        assert part in text


def test_so_it_is_where_nothing_but_the_batches_tells(tmp_path: Path) -> None:
    root = filled(tmp_path)
    segment, position = middle_batch(root)
    harm.flip(segment, position)
    (root / APPLIED).unlink()
    (root / PARTITION_DIRECTORY / "leader-epoch-checkpoint").unlink()
    assert "follows whole" in refused(root)


def test_what_is_left_is_accepted_and_strays_come_back_with_the_backup(tmp_path: Path) -> None:
    root = filled(tmp_path)
    shutil.copytree(root / PARTITION_DIRECTORY, tmp_path / "backup")
    empty_log(root / PARTITION_DIRECTORY)
    said = cli("metadata", "accept", root)
    assert "alpha-0" in said
    assert "nothing was changed" in said
    assert "had applied" in refused(root)
    cli("metadata", "accept", root, "--yes")
    asyncio.run(ends(root))
    strays = sorted(root.glob("*-stray"))
    assert len(strays) == 3
    assert "beta-0" in cli("log", "stray", "list", root)
    # A backup turns up.
    shutil.rmtree(root / PARTITION_DIRECTORY)
    shutil.copytree(tmp_path / "backup", root / PARTITION_DIRECTORY)
    cli("metadata", "accept", root, "--yes")
    said = cli("log", "stray", "restore", *strays)
    assert "would be" in said
    assert all(each.exists() for each in strays)
    cli("log", "stray", "restore", *strays, "--yes")
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]


def test_topics_are_made_anew_from_what_their_directories_say(tmp_path: Path) -> None:
    root = filled(tmp_path)
    empty_log(root / PARTITION_DIRECTORY)
    cli("metadata", "accept", root, "--with-topics", "--yes")

    async def run() -> None:
        await fill(root, "delta")
        assert await ends(root, *TOPICS, "delta") == [1, 1, 1, 1]

    asyncio.run(run())
    assert not list(root.glob("*-stray"))


def test_one_deleted_topic_is_set_aside_still(tmp_path: Path) -> None:
    """Its topic was deleted: the metadata do not have it, though they go as far as before."""
    root = filled(tmp_path)
    shutil.copytree(root / "alpha-0", root / "zeta-0")
    asyncio.run(ends(root))
    assert len(list(root.glob("zeta-0.*-stray"))) == 1


def test_a_stray_is_deleted_only_when_somebody_says_so(tmp_path: Path) -> None:
    root = filled(tmp_path)
    shutil.copytree(root / "alpha-0", root / "zeta-0")
    asyncio.run(ends(root))
    (stray,) = root.glob("zeta-0.*-stray")
    refusal = CliRunner().invoke(main, ["log", "stray", "delete", str(stray)], input="n\n")
    assert refusal.exit_code == 1
    assert stray.exists()
    mistaken = CliRunner().invoke(main, ["log", "stray", "delete", str(root / "alpha-0"), "--yes"])
    assert mistaken.exit_code == 2
    assert (root / "alpha-0").exists()
    cli("log", "stray", "delete", stray, "--yes")
    assert not stray.exists()


def test_a_stray_of_no_topic_is_not_taken_back(tmp_path: Path) -> None:
    root = filled(tmp_path)
    shutil.copytree(root / "alpha-0", root / "zeta-0")
    (root / "zeta-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ")
    asyncio.run(ends(root))
    (stray,) = root.glob("zeta-0.*-stray")
    result = CliRunner().invoke(main, ["log", "stray", "restore", str(stray), "--yes"])
    assert result.exit_code == 1
    assert "which the metadata do not have" in result.output
    assert stray.exists()


@pytest.mark.parametrize("kind", harm.CONTENT_HARMS)
def test_a_damaged_record_of_what_was_applied_renames_nothing(tmp_path: Path, kind: str) -> None:
    root = filled(tmp_path)
    shutil.copytree(root / "alpha-0", root / "zeta-0")
    harm.CONTENT_HARMS[kind](root / APPLIED)
    if kind == harm.FLIPPED:
        (root / APPLIED).write_text("{")
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]
    assert (root / "zeta-0").exists()
    assert AppliedMetadata.read(root) is not None


@pytest.mark.parametrize("kind", [*harm.CONTENT_HARMS, harm.DELETED])
def test_a_lost_snapshot_is_replaced_by_the_log_where_that_has_all(tmp_path: Path, kind: str) -> None:
    root = filled(tmp_path)
    directory = root / PARTITION_DIRECTORY
    first = directory / list_snapshots(directory)[-1].file_name
    first.chmod(0o600)
    harm.ALL_HARMS[kind](first)
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]
    assert kind == harm.DELETED or first.with_name(first.name + ".damaged").exists()


@pytest.mark.parametrize("way", ["cut", "skip"])
def test_both_ways_out_of_a_damaged_batch(tmp_path: Path, way: str) -> None:
    root = filled(tmp_path)
    segment, position = middle_batch(root)
    harm.flip(segment, position)
    result = CliRunner().invoke(main, ["log", "repair", str(root), "--output", str(tmp_path / "r"), "--metadata", way])
    assert result.exit_code == 1  # a batch was dropped
    repaired = tmp_path / "r"
    if way == "cut":
        assert "metadata accept" in result.output
        assert "had applied it up to" in refused(repaired)
        cli("metadata", "accept", repaired, "--with-topics", "--yes")
        assert asyncio.run(ends(repaired, *TOPICS)) == [1, 1, 1]
    else:
        assert "records without effect" in result.output
        assert asyncio.run(ends(repaired, "gamma")) == [1]


def test_what_follows_the_damage_is_kept_as_far_as_it_can_be_replayed(tmp_path: Path) -> None:
    """The topic whose record is lost is lost, and what was said of it; those before and after are there."""
    root = filled(tmp_path)
    segment = list_segments(root / PARTITION_DIRECTORY)[-1].path
    content = segment.read_bytes()
    harm.flip(segment, content.index(b"beta"))
    result = CliRunner().invoke(main, ["log", "repair", str(root), "--in-place", "--metadata", "skip"])
    assert result.exit_code == 1, result.output
    assert asyncio.run(ends(root, "alpha", "gamma")) == [1, 1]
    (stray,) = root.glob("*-stray")
    assert stray.name.startswith("beta-0.")
    stray.rename(root / "beta-0")
    cli("metadata", "accept", root, "--with-topics", "--yes")
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]


@pytest.mark.parametrize("loss", ["emptied", "deleted", "cut"])
def test_a_log_that_ends_before_its_snapshot_is_accepted_when_somebody_says_so(tmp_path: Path, loss: str) -> None:
    root = tmp_path / "d"
    settings = {"metadata_log_max_record_bytes_between_snapshots": "200"}

    async def run() -> None:
        async with running(config_for(root, **settings)) as daemon, connected(daemon) as client:
            for topic in TOPICS:
                await client.make_topic(topic)
                assert (await client.produce(topic, topic.encode())).error_code == 0
            await until_async(lambda: len(list_snapshots(root / PARTITION_DIRECTORY)) > 1)

    asyncio.run(run())
    (root / APPLIED).unlink()
    LOSSES[loss](root / PARTITION_DIRECTORY)
    if loss == "cut":
        harm.empty(list_segments(root / PARTITION_DIRECTORY)[-1].path)
    assert "was made of one that went further" in refused(root)
    cli("metadata", "accept", root, "--with-topics", "--yes")
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]
    assert asyncio.run(ends(root, *TOPICS)) == [1, 1, 1]
