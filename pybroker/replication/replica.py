"""`Replica`: one partition held here, and what it is at the moment. On the asyncio loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from pybroker.replication.data_plane import ReplicatedPartition
from pybroker.replication.fetcher_manager import Source
from pybroker.storage.logs.partition_log import PartitionLog


@dataclass(slots=True)
class Replica:
    """Leader, follower or neither. `leader_epoch` is -1 while it is not led here; `followed_epoch` is the leader's
    while it follows by `source`."""

    log: PartitionLog
    leader_epoch: int = -1
    #: Where the log ended when this broker became its leader.
    epoch_start_offset: int = 0
    followed_epoch: int = -1
    source: Source | None = None
    #: Its log is about to be closed: it takes no role any more.
    is_leaving: bool = False
    #: Held while it takes a role.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def native(self) -> ReplicatedPartition:
        """The partition in the data plane."""
        native: ReplicatedPartition = cast(Any, self.log.native)
        return native

    @property
    def leads(self) -> bool:
        """Whether clients are served."""
        return self.leader_epoch >= 0

    @property
    def follows(self) -> bool:
        """Whether it fetches from a leader."""
        return self.source is not None
