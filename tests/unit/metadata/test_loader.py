"""Replay of batches: transactions, errors that name the offset, and Kafka's own directory."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from pybroker.metadata import loader, records
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.file_log import FileMetadataLog
from pybroker.metadata.loader import BatchReplayer, load, warn_of_unserved
from pybroker.metadata.records import MetadataBatch, VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol import metadata_records, record_batch
from pybroker.protocol.record_batch import Record


def _batch(base_offset: int, *contents: Any) -> MetadataBatch:
    return MetadataBatch(base_offset, 1, 1000, 0, tuple(VersionedRecord(each, 0) for each in contents))


_TOPIC = m.TopicRecord(name="alpha", topic_id=b"t" * 16)


def test_a_transaction_counts_when_it_ends() -> None:
    replayer = BatchReplayer(empty_image("c"))
    replayer.replay(_batch(0, m.BeginTransactionRecord(), _TOPIC))
    assert replayer.is_in_transaction
    assert not replayer.finish(2, 1).topics.by_name
    replayer.replay(_batch(2, m.EndTransactionRecord()))
    assert not replayer.is_in_transaction
    assert set(replayer.finish(3, 1).topics.by_name) == {"alpha"}


def test_an_aborted_transaction_never_counts() -> None:
    replayer = BatchReplayer(empty_image("c"))
    replayer.replay(_batch(0, m.BeginTransactionRecord(), _TOPIC, m.AbortTransactionRecord()))
    assert not replayer.is_in_transaction
    assert not replayer.finish(3, 1).topics.by_name


@pytest.mark.parametrize(
    "contents",
    [
        (_TOPIC, m.EndTransactionRecord()),
        (_TOPIC, m.AbortTransactionRecord()),
        (m.BeginTransactionRecord(), m.BeginTransactionRecord()),
        (_TOPIC, _TOPIC),
    ],
)
def test_errors_name_the_offset(contents: tuple[Any, ...]) -> None:
    with pytest.raises(MetadataError, match="at offset 41"):
        BatchReplayer(empty_image("c")).replay(_batch(40, *contents))


@pytest.mark.parametrize("value", [b"\x01\x63\x00", b"\x01\x02\x09\x00", b"\x02\x02\x00", b"\x01\x02"])
def test_unknown_records_and_versions_stop_the_replay(value: bytes) -> None:
    data = record_batch.build(7, 1, [Record(None, value)], timestamp_ms=0)
    with pytest.raises(MetadataError, match=r"some\.log: the record at offset 7 cannot be read"):
        records.decode_batch(data, "some.log")


def test_unknown_control_records_stop_the_replay() -> None:
    data = record_batch.build(7, 1, [Record(b"\0\0\0\x63", b"\0\0")], control=True, timestamp_ms=0)
    with pytest.raises(MetadataError, match="unknown control record type 99"):
        records.decode_batch(data, "some.log")


@pytest.mark.parametrize("value", [b"", b"\0"])
def test_control_records_without_a_version_stop_the_replay(value: bytes) -> None:
    data = record_batch.build(7, 1, [Record(b"\0\0\0\2", value)], control=True, timestamp_ms=0)
    with pytest.raises(MetadataError, match=r"some\.log: the record at offset 7 cannot be read"):
        records.decode_batch(data, "some.log")


def test_a_directory_of_apache_kafka(kafka_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    shutil.copytree(kafka_dir / directory.name, directory)
    log = FileMetadataLog(directory)
    replayer = load(empty_image("c"), log.replay())
    image = replayer.finish(log.end_offset, log.epoch)
    assert (log.end_offset, log.epoch, log.snapshots[-1].end_offset) == (285, 1, 118)
    assert set(image.topics.by_name) == {"alpha", "beta.x"}
    alpha = image.topics.by_name["alpha"]
    assert sorted(alpha.partitions) == [0, 1, 2, 3, 4]
    # Kafka stopped cleanly with eligible leader replicas on: nobody leads, and the broker waits to be elected.
    assert {(each.leader, each.isr, each.eligible_leader_replicas) for each in alpha.partitions.values()} == {
        (-1, (), (1,))
    }
    assert image.configs == {
        (4, ""): {"log.retention.ms": "99999999", "min.insync.replicas": "1"},
        (2, "alpha"): {"retention.ms": "12345"},
        (4, "1"): {"log.segment.bytes": "20000000"},
    }
    assert image.next_producer_id == 1000
    assert image.cluster.brokers[1].fenced
    assert [voter.id for voter in image.quorum.voters] == [1]
    with caplog.at_level(logging.WARNING, logger=loader.__name__):
        lines = warn_of_unserved(image)
    assert [record.message for record in caplog.records] == lines
    assert image.client_quotas == {(("client-id", "c1"),): {"consumer_byte_rate": 1024.0}}
    assert sum("share.version=1" in line for line in lines) == 1


def test_kafkas_snapshot_and_log_say_the_same(kafka_dir: Path, tmp_path: Path) -> None:
    """Replaying the log alone from offset 0 gives what the snapshot plus the rest of the log give."""
    images = []
    for name, use_snapshot in (("with", True), ("without", False)):
        directory = tmp_path / name
        shutil.copytree(kafka_dir / "__cluster_metadata-0", directory)
        if not use_snapshot:
            (directory / "00000000000000000118-0000000001.checkpoint").unlink()
        log = FileMetadataLog(directory)
        images.append(load(empty_image("c"), log.replay()).finish(log.end_offset, log.epoch))
    first, second = images
    assert first.topics == second.topics
    assert first.configs == second.configs
    assert first.retained == second.retained
    assert first.client_quotas == second.client_quotas
    assert first.feature_levels == second.feature_levels
    assert first.next_producer_id == second.next_producer_id
    registered, replayed = first.cluster.brokers[1], second.cluster.brokers[1]
    assert sorted(registered.features) == sorted(replayed.features)
    assert (registered.epoch, registered.fenced, registered.endpoints) == (
        replayed.epoch,
        replayed.fenced,
        replayed.endpoints,
    )


def test_metadata_record_frame() -> None:
    value = metadata_records.encode(_TOPIC, 0)
    assert value[:3] == b"\x01\x02\x00"
