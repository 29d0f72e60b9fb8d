"""`Keeper`: keeps of a metadata log behind damage all that can be replayed without the records that are lost, for
`pybroker log repair --metadata skip`.

Blocks on reading the snapshot. Fails with `MetadataError` and `OSError`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.metadata import records
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import DamagedBatch, MetadataError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import BatchReplayer
from pybroker.metadata.log_files import read_snapshot_batches
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.storage.offline.layout import PartitionFiles

#: Kafka's reader takes batches up to 8 MiB.
_BATCH_RECORD_COUNT = 1000


class Keeper:
    """A `MetadataKeeper`: replays what is kept, beginning with the newest snapshot that is whole."""

    def __init__(self, files: PartitionFiles) -> None:
        self._image = empty_image("")
        self._start = 0
        for snapshot in sorted(files.metadata_snapshots, key=lambda each: each.end_offset, reverse=True):
            replayer = BatchReplayer(empty_image(""))
            try:
                for data in read_snapshot_batches(snapshot.path):
                    replayer.replay(records.decode_batch(data, str(snapshot.path)))
            except DamagedBatch:
                continue
            self._image, self._start = replayer.finish(snapshot.end_offset, snapshot.epoch), snapshot.end_offset
            break
        #: Kept while a metadata transaction is open.
        self._replayer: BatchReplayer | None = None

    def fillers(self, base_offset: int, end_offset: int, epoch: int) -> Iterator[bytes]:
        """Batches of NoOpRecord (KIP-835) for these offsets."""
        for first in range(base_offset, end_offset, _BATCH_RECORD_COUNT):
            count = min(_BATCH_RECORD_COUNT, end_offset - first)
            yield records.encode_batch(first, epoch, 0, [VersionedRecord(m.NoOpRecord(), 0)] * count)

    def refusal(self, data: bytes) -> str | None:
        """See `MetadataKeeper`."""
        batch = records.decode_batch(data, "the metadata log")
        if batch.next_offset <= self._start:
            return None
        replayer = self._replayer or BatchReplayer(self._image)
        try:
            replayer.replay(batch)
            # A delta that has taken a part of a batch is of no use, so after each there is an image to go back to.
            image: MetadataImage | None = None
            if not replayer.is_in_transaction:
                image = replayer.finish(batch.next_offset, batch.epoch)
        except MetadataError as error:
            self._replayer = None
            return str(error)
        self._replayer = replayer if image is None else None
        self._image = self._image if image is None else image
        return None
