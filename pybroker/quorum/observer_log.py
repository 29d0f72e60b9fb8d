"""`ObserverLog`: the metadata log as an observer of the quorum has it in memory: what is committed, and what not yet.

Pure. A batch counts once the quorum has committed it, which is when the high watermark has passed it; until then
another leader may take it back (KIP-595). Committed records are handed on once and forgotten. Failures: `MetadataError`
for unknown records, `ProtocolError` for bytes that were damaged on their way and may be fetched again, `QuorumError`
when committed records are taken back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pybroker.metadata.errors import DamagedBatch
from pybroker.metadata.log_files import SnapshotId
from pybroker.metadata.records import MetadataBatch, decode_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.quorum.errors import QuorumError

_LENGTH_END = 12
_MIN_BATCH_BYTES = 61


class ObserverLog:
    """`end_offset` and `last_epoch` are where the next fetch goes on; `committed_offset` is up to where batches were
    handed on."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.last_epoch = 0
        self.committed_offset = 0
        #: -1 while no leader has told it.
        self.high_watermark = -1
        self._committed_epoch = 0
        self._pending: list[MetadataBatch] = []

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the leader has told to be committed was handed on."""
        return 0 <= self.high_watermark <= self.committed_offset

    def append(self, data: bytes, where: str) -> None:
        """Take the batches of a fetch. `where` names the controller they came from."""
        for batch in split_batches(data, where):
            if batch.next_offset <= self.end_offset:
                continue
            if batch.base_offset != self.end_offset:
                raise QuorumError(
                    f"{where} has sent metadata from offset {batch.base_offset} on when asked for {self.end_offset}"
                )
            self._pending.append(batch)
            self.end_offset, self.last_epoch = batch.next_offset, batch.epoch

    def raise_high_watermark(self, offset: int) -> None:
        """The leader has told its high watermark; a new leader may tell an older one for a moment."""
        self.high_watermark = max(self.high_watermark, offset)

    def take_committed(self) -> list[MetadataBatch]:
        """The batches that count from now on, in order."""
        count = 0
        while count < len(self._pending) and self._pending[count].next_offset <= self.high_watermark:
            count += 1
        committed, self._pending = self._pending[:count], self._pending[count:]
        if committed:
            self.committed_offset, self._committed_epoch = committed[-1].next_offset, committed[-1].epoch
        return committed

    def truncate(self, epoch: int, end_offset: int) -> None:
        """The leader's log has `epoch` end at `end_offset`: forget what it does not have (KIP-595)."""
        self._pending = [each for each in self._pending if each.epoch <= epoch and each.next_offset <= end_offset]
        if end_offset < self.committed_offset or epoch < self._committed_epoch:
            raise QuorumError(
                f"the controllers have lost metadata that they had committed: epoch {epoch} ends at offset "
                f"{end_offset} there, and this broker has applied epoch {self._committed_epoch} up to "
                f"{self.committed_offset}. If they were restored from a backup, restart this broker"
            )
        last = self._pending[-1] if self._pending else None
        self.end_offset = last.next_offset if last is not None else self.committed_offset
        self.last_epoch = last.epoch if last is not None else self._committed_epoch

    def reset(self, snapshot: SnapshotId) -> None:
        """Go on behind a snapshot, whose content was handed on otherwise. QuorumError for one that ends before what
        counts already: what it lacks would be deleted here."""
        if snapshot.end_offset < self.committed_offset or snapshot.epoch < self._committed_epoch:
            raise QuorumError(
                f"the controllers have lost metadata that they had committed: their snapshot ends at offset "
                f"{snapshot.end_offset} in epoch {snapshot.epoch}, and this broker has applied epoch "
                f"{self._committed_epoch} up to {self.committed_offset}. If they were restored from a backup, restart "
                "this broker"
            )
        self._pending = []
        self.end_offset = self.committed_offset = snapshot.end_offset
        self.last_epoch = self._committed_epoch = snapshot.epoch


def split_batches(data: bytes, where: str) -> Iterator[MetadataBatch]:
    """The whole batches in `data`; one that is cut short at the end ends them. MetadataError and ProtocolError name
    `where`; the batches before have been given out."""
    position = 0
    while len(data) - position >= _LENGTH_END:
        (length,) = struct.unpack_from(">i", data, position + 8)
        size = length + _LENGTH_END
        if size < _MIN_BATCH_BYTES:
            raise ProtocolError(f"{where} has sent a batch of metadata that claims {size} bytes, less than its header")
        if size > len(data) - position:
            return
        try:
            batch = decode_batch(data[position : position + size], where)
        except DamagedBatch as error:
            raise ProtocolError(str(error)) from error
        yield batch
        position += size
