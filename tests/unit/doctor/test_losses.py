"""`pybroker doctor` on logs that lack records which they had."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pybroker.doctor.losses import CHECKS
from pybroker.native.rings import boot_id
from pybroker.storage.files import clean_shutdown, partition_metadata
from pybroker.storage.files.log_ends import EndsFile, RecordedEnds, checkpoint_crc

TOPIC_ID = bytes(range(16))


def _found(log_dir: Path, holders: dict[Path, int]) -> list[Any]:
    subject: Any = SimpleNamespace(log_dirs=[log_dir], holders=holders)
    return [each for check in CHECKS for each in check(subject)]


def test_a_missing_segment_is_named_unless_a_broker_has_the_dir(tmp_path: Path) -> None:
    log = tmp_path / "a b" / "t-0"
    log.mkdir(parents=True)
    partition_metadata.write(log, TOPIC_ID)
    (log / f"{0:020}.log").write_bytes(bytes(70))
    crc = checkpoint_crc(log.parent)
    ends = {("t", 0): RecordedEnds(TOPIC_ID, 0, 0, 20, 20, ((0, 70), (10, 80)))}
    EndsFile(boot_id(), (crc, crc), 5, ends).write(log.parent)
    clean_shutdown.write(log.parent, 5)
    (found,) = _found(log.parent, {})
    assert (found.kind, found.subject) == ("lost-records", str(log / f"{10:020}.log"))
    assert "it is gone: offsets 10 to 19 of t-0" in found.what
    assert f"pybroker log accept-loss '{log.parent}' --partition t-0" in found.remedy
    assert _found(log.parent, {log.parent: 77}) == []
    (log / f"{10:020}.log").write_bytes(bytes(80))
    assert _found(log.parent, {}) == []
