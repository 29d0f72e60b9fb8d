"""`LostReplicas`: keeps replicas whose logs have lost records from leading, until others have brought them back.

A broker that finds a loss at its start registers as after an unclean stop, so the controllers take it out of every ISR
(KIP-966). A replica with a loss then follows. It counts as mended when the controllers have it in the ISR again. On the
asyncio loop.
"""

from __future__ import annotations

import logging

from pybroker.metadata.image import PartitionRegistration
from pybroker.observability.event_log import event
from pybroker.replication.replica import Replica
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.ends_keeper import EndsKeeper
from pybroker.storage.logs.log_loss import end_of

logger = logging.getLogger(__name__)


class LostReplicas:
    """`may_be` before a replica takes a role."""

    def __init__(self, node_id: int, ends: EndsKeeper) -> None:
        self._node_id = node_id
        self._ends = ends
        #: Those that the controllers have seen outside the ISR since the loss was found.
        self._outside: set[TopicPartition] = set()

    def may_be(self, replica: Replica, registration: PartitionRegistration) -> bool:
        """Whether a replica may be what it is registered as."""
        log = replica.log
        if log.lost is None:
            return True
        if registration.leader == self._node_id:
            logger.error(
                "%s cannot be led here: it has lost records that only other replicas may have. It is offline until "
                "another replica leads, or the loss is accepted with `pybroker log accept-loss`",
                log,
                extra=event("offline", partition=str(log)),
            )
            return False
        if self._node_id not in registration.isr:
            self._outside.add(log.key)
        elif replica.follows and (log.key in self._outside or log.native.state.log_end_offset >= end_of(log.lost)):
            self._outside.discard(log.key)
            self._ends.mended(log)
        return True
