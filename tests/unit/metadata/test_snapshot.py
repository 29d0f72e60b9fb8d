"""Snapshots: image to records and back, also through a file and at older metadata versions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.metadata import log_files, records
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MetadataImage, QuorumImage, Voter
from pybroker.metadata.loader import BatchReplayer, full_delta
from pybroker.metadata.snapshot import image_records, write_image, write_snapshot
from pybroker.protocol import messages as m

Replay = Callable[..., MetadataImage]


def test_image_survives_a_snapshot_file(tmp_path: Path, image: MetadataImage, replay: Replay) -> None:
    part = m.ClientQuotaRecord.EntityData
    parts = [part(entity_type="user", entity_name=None), part(entity_type="client-id", entity_name="app")]
    quota = m.ClientQuotaRecord(entity=parts, key="k", value=1.5)
    credential = m.UserScramCredentialRecord(
        name="ann", mechanism=2, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
    )
    token = m.DelegationTokenRecord(token_id="token")
    ids = m.ProducerIdsRecord(next_producer_id=1000)
    image = replay(image, quota, credential, token, ids, m.RegisterControllerRecord(controller_id=1))
    voter = Voter(1, b"d" * 16, (("CONTROLLER", "127.0.0.1", 9093),), (0, 1))
    delta = MetadataDelta(image)
    for control in (m.KRaftVersionRecord(kraft_version=1),):
        delta.replay_control(control)
    image = MetadataDelta(image).apply(image.provenance)
    object.__setattr__(image, "quorum", QuorumImage(1, (voter,)))
    snapshot_id, size_bytes = write_image(tmp_path, image, 2000)
    path = tmp_path / snapshot_id.file_name
    assert path.name == "00000000000000000011-0000000001.checkpoint"
    assert path.stat().st_size == size_bytes
    assert path.stat().st_mode & 0o777 == 0o400
    replayer = BatchReplayer(empty_image("cluster"))
    for data in log_files.read_snapshot_batches(path):
        replayer.replay(records.decode_batch(data, "file"))
    assert replayer.finish(11, 1).at(image.provenance) == image


def test_full_delta_makes_the_same_image(image: MetadataImage) -> None:
    delta = full_delta(image)
    assert delta.apply(image.provenance) == image
    assert set(delta.topics_changed) == set(image.topics.by_id)


@pytest.mark.parametrize(("level", "versions"), [(7, (1, 0)), (17, (3, 1)), (23, (3, 2)), (30, (4, 2))])
def test_records_are_written_in_the_versions_of_the_metadata_version(
    image: MetadataImage, replay: Replay, level: int, versions: tuple[int, int]
) -> None:
    image = replay(image, m.FeatureLevelRecord(name="metadata.version", feature_level=level))
    found = {type(record).__name__: version for record, version in image_records(image)}
    assert (found["RegisterBrokerRecord"], found["PartitionRecord"]) == versions
    for record, version in image_records(image):
        record.encode(version)


def test_a_damaged_snapshot_is_refused(tmp_path: Path, image: MetadataImage) -> None:
    path = tmp_path / "x.checkpoint"
    write_snapshot(path, 1, 2000, 1000, None, image_records(image), mode=0o600)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(MetadataError, match="wrong CRC at position"):
        list(log_files.read_snapshot_batches(path))
