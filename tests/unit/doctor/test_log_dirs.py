"""`pybroker doctor` on log dirs: whose they are, whether they can be used, and what lies in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from patients import Examine, faults

from pybroker.metadata import features, log_files, snapshot
from pybroker.metadata.bootstrap import open_log_dirs
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.meta_properties import FILE_NAME, MetaProperties

NOT_ROOT = 65_534


def test_nothing_is_wrong_with_a_new_dir_nor_with_none(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    assert faults(examined(f"log.dirs={new_dir}")) == set()
    found = examined(f"log.dirs={tmp_path / 'none'}")
    assert faults(found) == set()
    assert "log-dir-new" in found


def test_features_that_are_not_served(examined: Examine, kafka_dir: Path) -> None:
    found = examined(f"log.dirs={kafka_dir}")
    assert faults(found) == set()
    assert "transaction.version at level 2 (served up to 0)" in found["unserved-feature"].what


def test_metadata_of_a_later_version(examined: Examine, new_dir: Path) -> None:
    level = features.MAX_METADATA_VERSION + 1
    record = VersionedRecord(m.FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=level), 0)
    path = new_dir / log_files.PARTITION_DIRECTORY / log_files.SnapshotId(5, 1).file_name
    snapshot.write_snapshot(path, 0, 1_700_000_000_000, 1_700_000_000_000, None, [record])
    found = examined(f"log.dirs={new_dir}")
    assert found["unserved-feature"].severity.is_fault
    assert f"metadata.version at level {level}" in found["unserved-feature"].what


def test_metadata_kept_by_controllers_elsewhere(examined: Examine, new_dir: Path) -> None:
    shutil.rmtree(new_dir / log_files.PARTITION_DIRECTORY)
    assert faults(examined(f"log.dirs={new_dir}")) == {"metadata-missing"}
    joining = ("process.roles=broker", "controller.quorum.bootstrap.servers=127.0.0.1:1")
    assert faults(examined(f"log.dirs={new_dir}", *joining)) == set()


def test_another_node(examined: Examine, new_dir: Path) -> None:
    found = examined(f"log.dirs={new_dir}", "node.id=7")
    assert faults(found) == {"foreign-node-id"}
    assert "node.id=1, and the setting node.id is 7" in found["foreign-node-id"].what


def test_another_cluster(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    MetaProperties(1, "another-cluster", random_uuid()).write(other)
    clean_shutdown.write(other, 1)
    found = examined(f"log.dirs={new_dir},{other}")
    assert faults(found) == {"foreign-cluster-id"}
    assert found["foreign-cluster-id"].subject == str(other / FILE_NAME)


def test_a_copy_beside_its_original(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(new_dir, copy)
    shutil.rmtree(copy / "__cluster_metadata-0")
    assert "copied-log-dir" in examined(f"log.dirs={new_dir},{copy}")


def test_one_dir_by_two_names(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(new_dir)
    found = examined(f"log.dirs={new_dir},{tmp_path / 'link'}")
    assert "log-dir-twice" in found
    assert "copied-log-dir" not in found


def test_two_dirs_on_one_disk(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    found = examined(f"log.dirs={new_dir},{tmp_path / 'second'}")
    assert faults(found) == set()
    assert "log-dirs-on-one-disk" in found


def test_a_dir_that_is_not_mounted(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    assert faults(examined(f"log.dirs={new_dir},{tmp_path / 'gone'}")) == {"log-dir-missing"}


def test_a_file_in_the_place_of_a_dir(examined: Examine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert faults(examined(f"log.dirs={tmp_path / 'file'}")) == {"log-dir-no-directory"}


def test_the_zookeeper_age(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    cluster_id = re.search("cluster.id=(.*)", (new_dir / FILE_NAME).read_text())
    assert cluster_id is not None
    (new_dir / FILE_NAME).write_text(f"version=0\nbroker.id=1\n{cluster_id[0]}\n")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={new_dir}\nzookeeper.connect=here:2181\nlog.retention.huors=2\n")
    found = examined(properties=properties)
    assert faults(found) == {"retired-setting", "unknown-setting"}
    assert found["retired-setting"].subject == f"{properties}:2"


def test_settings_without_effect(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={new_dir}\nnode.id=7\nnode.id=1\nsuper.users=User:ann\n")
    found = examined(properties=properties)
    assert found["repeated-setting"].subject == f"{properties}:3"
    assert found["plugin-setting"].subject == f"{properties}:4"
    assert "foreign-node-id" not in found, "the last one counts"


def test_identity_that_is_damaged_or_gone(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / FILE_NAME).write_text("version=1\nnode.id=x\ncluster.id=c\ndirectory.id=d\n")
    assert "identity-damaged" in examined(f"log.dirs={kafka_dir}")
    (kafka_dir / FILE_NAME).unlink()
    assert "identity-missing" in examined(f"log.dirs={kafka_dir}")


def test_metadata_that_is_elsewhere(examined: Examine, new_dir: Path, tmp_path: Path) -> None:
    (new_dir / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    assert "metadata-missing" in faults(examined(f"log.dirs={new_dir}"))


def test_a_dir_of_another_user(examined: Examine, new_dir: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(new_dir / FILE_NAME, NOT_ROOT, NOT_ROOT)
    found = examined(f"log.dirs={new_dir}")
    assert faults(found) == {"log-dir-owner"}
    assert FILE_NAME in found["log-dir-owner"].what


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_dir_that_may_not_be_written_to(mode: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("as another user, which root can become")
    # Once as root: the other user may not be allowed to read the modules that are imported meanwhile.
    script = (
        "import os, sys; from pybroker.config.broker import BrokerConfig\n"
        "from pybroker.doctor.examine import examine; from pybroker.doctor.subject import make_subject\n"
        "settings = ['log.dirs=' + sys.argv[1], 'listeners=PLAINTEXT://127.0.0.1:0']\n"
        "config = BrokerConfig.load(None, settings)\n"
        "examine(make_subject(config, None, settings, None))\n"
        f"os.setuid({NOT_ROOT}); print(*[each.kind for each in examine(make_subject(config, None, settings, None))])"
    )
    with tempfile.TemporaryDirectory() as parent:
        (Path(parent) / "data").mkdir()
        os.chmod(parent, mode)
        command = [sys.executable, "-c", script, f"{parent}/data"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "log-dir-not-writable" in done.stdout.split(), done.stderr


@pytest.mark.parametrize("name", ["4.3.0-voters", "4.3.0-standalone", "4.4.0-none", "4.4.0-standalone", "4.4.0-voters"])
def test_a_dir_that_kafka_formatted_and_nobody_started_is_in_order(
    examined: Examine, tmp_path: Path, name: str
) -> None:
    formatted = Path(__file__).parents[1] / "metadata" / "data" / "formatted" / name
    path = Path(shutil.copytree(formatted, tmp_path / "data"))
    assert faults(examined(f"log.dirs={path}")) == set()


@pytest.mark.parametrize(("level", "is_told"), [(7, True), (32, True), (33, False)])
def test_an_older_metadata_version_is_told_with_the_command_that_raises_it(
    examined: Examine, new_dir: Path, level: int, is_told: bool
) -> None:
    directory = new_dir / log_files.PARTITION_DIRECTORY
    record = VersionedRecord(m.FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=level), 0)
    snapshot.write_snapshot(directory / log_files.SnapshotId(1, 1).file_name, 1, 1, 1, None, [record])
    found = examined(f"log.dirs={new_dir}")
    assert ("older-metadata-version" in found) is is_told
    if is_told:
        assert "upgrade --feature metadata.version=33`" in found["older-metadata-version"].remedy


@pytest.mark.parametrize(("level", "elr", "is_told"), [(7, 0, True), (33, 0, True), (33, 1, False)])
def test_every_feature_below_the_level_of_new_clusters_is_told(
    examined: Examine, new_dir: Path, level: int, elr: int, is_told: bool
) -> None:
    directory = new_dir / log_files.PARTITION_DIRECTORY
    levels = {features.METADATA_VERSION: level, features.ELIGIBLE_LEADER_REPLICAS_VERSION: elr}
    records = [VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=to), 0) for name, to in levels.items()]
    snapshot.write_snapshot(directory / log_files.SnapshotId(1, 1).file_name, 1, 1, 1, None, records)
    found = examined(f"log.dirs={new_dir}")
    assert ("older-feature-level" in found) is is_told
    if is_told:
        remedy = found["older-feature-level"].remedy
        assert "upgrade --feature eligible.leader.replicas.version=1`" in remedy
        assert ("it needs metadata.version at level 23 or more" in remedy) is (level < 23)


def test_a_partition_without_a_log_does_not_end_the_examination(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / clean_shutdown.FILE_NAME).unlink()
    (kafka_dir / "alpha-7").mkdir()
    assert "unclean-stop" in faults(examined(f"log.dirs={kafka_dir}"))


def test_an_unclean_stop(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / clean_shutdown.FILE_NAME).unlink()
    (kafka_dir / "recovery-point-offset-checkpoint").unlink()
    sorted((kafka_dir / "plain-0").glob("*.index"))[0].unlink()
    found = examined(f"log.dirs={kafka_dir}")
    assert faults(found) == {"unclean-stop"}
    assert "had not been flushed" in found["unclean-stop"].what


def test_a_torn_tail(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / clean_shutdown.FILE_NAME).unlink()
    log = sorted((kafka_dir / "plain-0").glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-3])
    assert "torn-tail" in faults(examined(f"log.dirs={kafka_dir}"))


def test_a_damaged_batch(examined: Examine, kafka_dir: Path) -> None:
    log = sorted((kafka_dir / "plain-0").glob("*.log"))[0]
    _flip(log, 70)
    found = examined(f"log.dirs={kafka_dir}")
    assert "damaged-batch" in faults(found)
    assert found["damaged-batch"].subject.startswith(str(log))


def test_a_damaged_index(examined: Examine, kafka_dir: Path) -> None:
    index = next(each for each in sorted(kafka_dir.glob("*-0/*.index")) if each.stat().st_size >= 16)
    _flip(index, 6)
    found = examined(f"log.dirs={kafka_dir}")
    assert "damaged-index" in faults(found)
    assert str(index) in found["damaged-index"].subject


def test_an_index_that_is_gone(examined: Examine, kafka_dir: Path) -> None:
    sorted((kafka_dir / "plain-0").glob("*.index"))[0].unlink()
    assert faults(examined(f"log.dirs={kafka_dir}")) == {"damaged-index"}


def test_a_damaged_checkpoint(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / "recovery-point-offset-checkpoint").write_text("0\nmany\n")
    assert "damaged-checkpoint" in faults(examined(f"log.dirs={kafka_dir}"))


def test_damaged_metadata(examined: Examine, kafka_dir: Path) -> None:
    log = kafka_dir / "__cluster_metadata-0" / f"{0:020}.log"
    _flip(log, log.stat().st_size // 2)
    found = examined(f"log.dirs={kafka_dir}")
    assert "metadata-damaged" in faults(found)
    assert "damaged-batch" not in found


def test_bytes_that_a_start_kept_aside(examined: Examine, kafka_dir: Path) -> None:
    (kafka_dir / "plain-0" / f"{0:020}.log.damaged-4096").write_bytes(b"x" * 5000)
    found = examined(f"log.dirs={kafka_dir}")
    assert "damage-kept" in faults(found)
    assert "4.9 KiB" in found["damage-kept"].what


def test_a_stray_partition(examined: Examine, kafka_dir: Path) -> None:
    shutil.copytree(kafka_dir / "plain-0", kafka_dir / f"plain-0.{'a' * 32}-stray")
    assert "stray-partition" in faults(examined(f"log.dirs={kafka_dir}"))


def test_files_of_two_topics(examined: Examine, kafka_dir: Path) -> None:
    """The file that names the topic is of another one than the metadata say."""
    shutil.copy(kafka_dir / "trimmed-0" / "partition.metadata", kafka_dir / "plain-0")
    found = examined(f"log.dirs={kafka_dir}")
    assert found["inconsistent-files"].subject.startswith(str(kafka_dir))
    assert found["inconsistent-files"].severity.is_fault


def test_logs_that_are_too_large_to_be_read(examined: Examine, kafka_dir: Path) -> None:
    log = sorted((kafka_dir / "plain-0").glob("*.log"))[0]
    _flip(log, 70)
    os.truncate(log, 5 << 30)  # takes no room
    found = examined(f"log.dirs={kafka_dir}")
    assert "damaged-batch" not in found
    assert "its logs have 5 GiB, and were not read" in found["not-read"].what
    assert not found["not-read"].severity.is_fault


def test_a_loop_in_the_place_of_a_log(examined: Examine, kafka_dir: Path) -> None:
    """What not even root can open."""
    log = sorted((kafka_dir / "plain-0").glob("*.log"))[0]
    log.unlink()
    log.symlink_to(log.name)
    found = examined(f"log.dirs={kafka_dir}")
    assert {"unreadable", "not-examined"} & faults(found)


def test_files_of_the_future(examined: Examine, kafka_dir: Path) -> None:
    log = sorted((kafka_dir / "plain-0").glob("*.log"))[0]
    later_s = time.time() + 86_400
    os.utime(log, (later_s, later_s))
    found = examined(f"log.dirs={kafka_dir}")
    assert "clock-behind-files" in faults(found)
    assert found["clock-behind-files"].subject == str(log)


def test_a_dir_that_another_broker_has(examined: Examine, new_dir: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pybroker.storage.files.directory_lock import DirectoryLock\n"
        "lock = DirectoryLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(new_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        found = examined(f"log.dirs={new_dir}")
        assert faults(found) == {"log-dir-in-use"}
        assert f"process {other.pid}" in found["log-dir-in-use"].what
        other.communicate()
    assert faults(examined(f"log.dirs={new_dir}")) == set()
    open_log_dirs([new_dir], 1, 1_700_000_000_000).release()


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def test_a_disk_with_less_room_than_its_reserve(examined: Examine, new_dir: Path) -> None:
    measured = os.statvfs(new_dir)
    free_bytes = measured.f_bavail * measured.f_frsize
    reserve = "pybroker.log.dir.reserve.bytes="
    assert "disk-below-reserve" not in examined(f"log.dirs={new_dir}", reserve + str(free_bytes // 2))
    found = examined(f"log.dirs={new_dir}", reserve + str(1 << 60))["disk-below-reserve"]
    assert found.severity.is_fault and "KAFKA_STORAGE_ERROR" in found.why
    assert "disk-below-reserve" not in examined(f"log.dirs={new_dir}", reserve + "0")
