"""`MetadataLog`: the narrow waist between whoever makes metadata records and where they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Protocol

from pybroker.metadata.image import MetadataImage
from pybroker.metadata.records import ControlRecord, VersionedRecord


class MetadataLog(Protocol):
    """An append-only log of metadata records, always synced. All methods belong to one asyncio loop."""

    @property
    def end_offset(self) -> int:
        """The offset the next record gets. Grows at the call of `append`, before anything is durable."""
        ...

    @property
    def epoch(self) -> int:
        """The leader epoch appends are made in."""
        ...

    def is_snapshot_due(self, now_ms: int) -> bool:
        """Whether enough was appended, or enough time has passed, since the last snapshot to make another."""
        ...

    def append(self, records: Sequence[VersionedRecord], time_ms: int) -> asyncio.Future[int]:
        """Append records as one batch, all or nothing. The future gives the first record's offset once they are
        durable.

        Futures complete in the order of the calls. MetadataLogError, raised or in the future, means that neither these
        records nor any later ones were written.
        """
        ...

    def append_steps(
        self, records: Sequence[VersionedRecord], time_ms: int
    ) -> Generator[None, None, asyncio.Future[int]]:
        """As `append`; yields where it may be interrupted. Nothing else may be appended meanwhile, and nothing is
        appended before the last step."""
        ...

    def append_control(self, records: Sequence[ControlRecord], time_ms: int) -> asyncio.Future[int]:
        """The same for control records."""
        ...

    async def write_snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """Keep `image`, which must be durable, as a snapshot, and drop what retention no longer asks for."""
        ...

    async def apply_retention(self, now_ms: int) -> None:
        """Drop the snapshots and segments that retention no longer asks for."""
        ...

    async def close(self) -> None:
        """Wait for appends under way; nothing may be appended any more."""
        ...
