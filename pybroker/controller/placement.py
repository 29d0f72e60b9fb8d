"""Where the replicas of new partitions go. Pure and deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pybroker.controller.state import ControllerState, Refusal
from pybroker.metadata import features
from pybroker.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY, BrokerRegistration
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_NO_EPOCH_YET = 0
_DIRECTORIES_SINCE_VERSION = 1


class Placement:
    """Assigns replicas, leaders and directories for the new partitions of one request."""

    def __init__(self, state: ControllerState) -> None:
        brokers = state.image.cluster.brokers
        self._brokers = brokers
        self._usable = sorted(each.id for each in brokers.values() if not each.fenced and _takes_new(each))
        self._next = len(state.image.topics.by_id)
        self._image = state.image
        self._load: Counter[bytes] | None = None
        version = features.record_version("PartitionRecord", state.image.metadata_version)
        self._has_directories = version >= _DIRECTORIES_SINCE_VERSION

    def replicas(self, partition_count: int, replication_factor: int) -> list[list[int]]:
        """Broker ids for each new partition, leaders spread evenly. Refusal when there are too few brokers."""
        usable = self._usable
        if not usable:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced, or "
                "have all their log directories cordoned.",
            )
        if replication_factor > len(usable):
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
                f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered or some "
                "brokers have all their log directories cordoned.",
            )
        start, self._next = self._next, self._next + partition_count
        return [
            [usable[(start + partition + replica) % len(usable)] for replica in range(replication_factor)]
            for partition in range(partition_count)
        ]

    def check_manual(self, broker_ids: Sequence[int], replication_factor: int | None) -> None:
        """Refusal with INVALID_REPLICA_ASSIGNMENT unless the client's list of replicas can be used."""
        assignment = "The manual partition assignment includes"
        if not broker_ids:
            problem = f"{assignment} an empty replica list."
        elif repeated := [each for each, count in Counter(broker_ids).items() if count > 1]:
            problem = f"{assignment} the broker {repeated[0]} more than once."
        elif strangers := [each for each in broker_ids if each not in self._brokers]:
            problem = f"{assignment} broker {strangers[0]}, but no such broker is registered."
        elif not set(broker_ids) & set(self._usable):
            problem = f"All brokers specified in the manual partition assignment {list(broker_ids)} are fenced."
        elif replication_factor is not None and len(broker_ids) != replication_factor:
            problem = (
                f"{assignment} a partition with {len(broker_ids)} replica(s), but this is not consistent with previous "
                f"partitions, which have {replication_factor} replica(s)."
            )
        else:
            return
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def partition_record(self, topic_id: bytes, index: int, replicas: Sequence[int]) -> m.PartitionRecord:
        """The record of a new partition: all live replicas in sync, the first of them leads."""
        isr = [broker_id for broker_id in replicas if broker_id in self._usable]
        return m.PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            leader=isr[0] if isr else NO_LEADER,
            leader_epoch=_NO_EPOCH_YET,
            partition_epoch=_NO_EPOCH_YET,
            directories=[self._directory(broker_id) for broker_id in replicas] if self._has_directories else [],
        )

    def _directory(self, broker_id: int) -> bytes:
        """The broker's log dir with the fewest replicas, of those that get new ones."""
        broker = self._brokers[broker_id]
        cordoned = broker.cordoned_directories or ()
        directories = [each for each in broker.directories if each not in cordoned] or list(broker.directories)
        if len(directories) <= 1:
            return directories[0] if directories else UNASSIGNED_DIRECTORY
        if self._load is None:
            topics = self._image.topics.by_id.values()
            self._load = Counter(
                directory for topic in topics for each in topic.partitions.values() for directory in each.directories
            )
        chosen = min(directories, key=self._load.__getitem__)
        self._load[chosen] += 1
        return chosen


def _takes_new(broker: BrokerRegistration) -> bool:
    """Whether some log dir of a broker gets new partitions (KIP-1066)."""
    cordoned = broker.cordoned_directories or ()
    return not broker.directories or any(each not in cordoned for each in broker.directories)
