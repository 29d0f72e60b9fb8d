"""Log dirs of earlier versions are opened with all they hold, and metadata comes back from a backup.

The backup and the restore are those of docs/upgrade.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.cluster.errors import ProcessFailed
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.dirs.format_version import FORMAT, OWN, FormatVersion
from pybroker.storage.files.meta_properties import MetaProperties
from tests.harness import kept_data
from tests.harness.broker import BrokerProcess
from tests.harness.kept_data import OVERRIDES, TOPIC

SAMPLES = Path(__file__).resolve().parents[2] / "data"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
METADATA_FILES = ("meta.properties", "bootstrap.checkpoint", "__cluster_metadata-0")


def unpack(format_number: int, log_dir: Path) -> None:
    # Python's own way asks for a filter from 3.12 on, and does not know of any before 3.11.4.
    log_dir.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xzf", SAMPLES / f"format-{format_number}.tar.gz", "-C", log_dir], check=True)


def records(*whats: str) -> dict[int, list[bytes]]:
    return {
        index: [f"{what} {codec} {index} {'x' * 100}".encode() for what in whats for codec in CODECS]
        for index in (0, 1)
    }


def copy_metadata(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name in METADATA_FILES:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir that was stopped in order, with data."""
    unpack(FORMAT, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("format_number", range(1, FORMAT + 1))
def test_every_format_is_opened_with_all_it_holds(tmp_path: Path, format_number: int) -> None:
    log_dir = tmp_path / "data"
    unpack(format_number, log_dir)
    topic_id = re.search(r"topic_id: (\S+)", (log_dir / f"{TOPIC}-0" / "partition.metadata").read_text())
    assert topic_id is not None
    with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
        found = kept_data.read(broker.bootstrap)
        assert found.topic_id == topic_id[1]
        assert found.configs == {"retention.ms": "-1", "max.message.bytes": "654321"}
        assert found.committed == {0: 3, 1: 4}
        assert found.records == records("first")
        kept_data.append(broker.bootstrap, "second")
        assert kept_data.read(broker.bootstrap).records == records("first", "second")
    assert FormatVersion.read(log_dir) == OWN


def test_a_broker_says_that_a_format_is_too_new(log_dir: Path) -> None:
    FormatVersion(FORMAT + 1, FORMAT + 1, "9.8.7").write(log_dir)
    command = [sys.executable, "-m", "pybroker", "serve", "--override", f"log.dirs={log_dir}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "last opened by pybroker 9.8.7" in done.stderr
    assert "Traceback" not in done.stderr


def test_metadata_comes_back_beside_intact_logs(log_dir: Path, tmp_path: Path) -> None:
    copy_metadata(log_dir, tmp_path / "backup")
    for name in METADATA_FILES:
        shutil.rmtree(log_dir / name) if (log_dir / name).is_dir() else (log_dir / name).unlink()
    (log_dir / ".kafka_cleanshutdown").unlink()
    copy_metadata(tmp_path / "backup", log_dir)
    with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
        found = kept_data.read(broker.bootstrap)
    assert found.records == records("first")
    assert found.configs["max.message.bytes"] == "654321"
    assert found.committed == {0: 3, 1: 4}


def test_metadata_comes_back_alone_into_an_empty_dir(log_dir: Path, tmp_path: Path) -> None:
    copy_metadata(log_dir, tmp_path / "backup")
    identity = MetaProperties.read(log_dir)
    shutil.rmtree(log_dir)
    log_dir.mkdir()
    copy_metadata(tmp_path / "backup", log_dir)
    with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
        found = kept_data.read(broker.bootstrap)
        assert found.records == {0: [], 1: []}
        assert found.configs == {"retention.ms": "-1", "max.message.bytes": "654321"}
        kept_data.append(broker.bootstrap, "again")
        assert kept_data.read(broker.bootstrap).records == records("again")
    assert MetaProperties.read(log_dir) == identity
    assert f"topic_id: {found.topic_id}" in (log_dir / f"{TOPIC}-0" / "partition.metadata").read_text()


def test_a_backup_while_the_broker_runs_is_one(log_dir: Path, tmp_path: Path) -> None:
    with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
        copy_metadata(log_dir, tmp_path / "backup")
        found = kept_data.read(broker.bootstrap)
    # What an append under way would leave in the copy.
    with open(tmp_path / "backup" / "__cluster_metadata-0" / f"{0:020d}.log", "ab") as file:
        file.write(random_uuid())
    restored = tmp_path / "restored"
    copy_metadata(tmp_path / "backup", restored)
    with BrokerProcess(restored, overrides=OVERRIDES) as broker:
        again = kept_data.read(broker.bootstrap)
    assert (again.topic_id, again.configs) == (found.topic_id, found.configs)


def test_a_backup_of_before_restarts_goes_with_newer_logs(log_dir: Path, tmp_path: Path) -> None:
    copy_metadata(log_dir, tmp_path / "backup")
    for what in ("second", "third"):
        with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
            kept_data.append(broker.bootstrap, what)
    for name in METADATA_FILES:
        shutil.rmtree(log_dir / name) if (log_dir / name).is_dir() else (log_dir / name).unlink()
    (log_dir / ".kafka_cleanshutdown").unlink()
    copy_metadata(tmp_path / "backup", log_dir)
    with pytest.raises(ProcessFailed, match="pybroker metadata accept"), BrokerProcess(log_dir, overrides=OVERRIDES):
        pass
    accept = [sys.executable, "-m", "pybroker", "metadata", "accept", str(log_dir), "--yes"]
    subprocess.run(accept, check=True, timeout=120)
    with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
        assert kept_data.read(broker.bootstrap).records == records("first", "second", "third")
        # By producers whose ids the logs do not know: these would take the records for repetitions.
        kept_data.append(broker.bootstrap, "fourth")
        assert kept_data.read(broker.bootstrap).records == records("first", "second", "third", "fourth")
