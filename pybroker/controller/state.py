"""The arguments and results of the controller's operations. Values; taking from a quota is all that they do."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pybroker.config.broker import BrokerConfig
from pybroker.metadata import features
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.values import Value

if TYPE_CHECKING:
    from pybroker.controller.mutation_quotas import Mutations
    from pybroker.native.descriptors import LogDescriptors

MAX_RECORDS_PER_OPERATION = 10_000
"""Kafka's bound on one user operation, which is one batch."""

Response = TypeVar("Response")


class ControllerState(Value):
    """The state an operation sees. `image` has every record accepted so far, also those not durable yet: an operation's
    response waits for them. `next_offset` is the offset its first record will get. `config` has the dynamic values.
    `mutations` is what the client may change, None where nothing bounds it."""

    image: MetadataImage
    config: BrokerConfig
    node_id: int
    next_offset: int
    mutations: Mutations | None = None
    descriptors: LogDescriptors | None = None
    """How many logs this broker may have open; None where nothing bounds them."""

    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.image.topics.by_id.values())

    def check_descriptors(self, partition_count: int) -> None:
        """Refusal when this broker cannot have so many partitions in all. POLICY_VIOLATION, as for any other bound of
        Kafka's controller on partitions: no client tries it again, and all show the message."""
        if self.descriptors is not None and partition_count > self.descriptors.log_count:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"the broker would have {partition_count} partitions, but {self.descriptors.remedy()}",
            )

    def take_partitions(self, count: int) -> None:
        """So many are created or deleted. Refusal when the client is over its quota."""
        if self.mutations is not None:
            self.mutations.take(count)

    def versioned(self, record: Any) -> VersionedRecord:
        """The record, to be written in the version that the cluster's metadata.version asks for."""
        return VersionedRecord(record, features.record_version(type(record).__name__, self.image.metadata_version))


class ControllerResult(Value, Generic[Response]):
    """Records to append as one batch, and the response that may leave once they are durable and replayed."""

    response: Response
    records: list[VersionedRecord] = field(default_factory=list)


class Refusal(KafkaError):
    """One topic or resource of a request cannot be served; the others may. Becomes a row of the response."""


def unknown_topic(name: str) -> Refusal:
    """A refusal with UNKNOWN_TOPIC_OR_PARTITION. Scripts search for the words that Kafka has for it."""
    text = f"This server does not host this topic-partition. Topic {name!r} does not exist"
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def invalid_request(message: str) -> Refusal:
    """A refusal with INVALID_REQUEST."""
    return Refusal(ErrorCode.INVALID_REQUEST, message)
