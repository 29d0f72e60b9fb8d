"""Facts about a partition from outside of its directory, and a check's knowledge of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pybroker.native.walk import WalkTotals
from pybroker.storage.offline.layout import PartitionFiles


@dataclass(slots=True)
class PartitionContext:
    """The facts in files outside of the directory. None: nothing is known."""

    cleaned_below: int | None = None
    """The cleaner has been over all below; 0: it has not been here."""
    log_start: int | None = None
    closed_cleanly: bool = False
    alone: bool = False
    """Only some of the partition's files are looked at."""


@dataclass(slots=True)
class PartitionState:
    """A check's knowledge of the partition."""

    files: PartitionFiles
    first_offset: int = 0
    end_offset: int = 0
    last_epoch: int = -1
    topic_id: bytes | None = None
    totals: WalkTotals | None = None
    is_damaged: bool = False
