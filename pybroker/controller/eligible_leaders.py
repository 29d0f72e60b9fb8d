"""The controller and eligible leader replicas (KIP-966): it keeps min.insync.replicas alike on all brokers, and
clears the lists of eligible replicas when that number changes. Pure.

A replica that leaves an ISR below min.insync.replicas stays eligible, since the high watermark waits for it. So the
number must be one for the whole cluster: the metadata has it as the default of all brokers, and none has its own.
Here no replica becomes eligible: this broker is the only one that its own controller elects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.controller.state import ControllerState, Refusal
from pybroker.metadata import features
from pybroker.metadata.eligible_leaders import ALL_BROKERS, MIN_INSYNC_REPLICAS, min_insync_replicas_of_all
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def are_kept(image: MetadataImage) -> bool:
    """Whether the feature is finalised."""
    return image.feature_levels.get(features.ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def one_number(state: ControllerState) -> list[VersionedRecord]:
    """The records that give all brokers one min.insync.replicas, which go before the feature's level."""
    key = BROKER_KEYS[MIN_INSYNC_REPLICAS]
    text = state.config.static.get(MIN_INSYNC_REPLICAS)
    number = key.default_value if text is None else key.parse(text)
    assert isinstance(number, int)
    return list(min_insync_replicas_of_all(state.image, number))


def check_alteration(image: MetadataImage, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
    """Refusal with INVALID_CONFIG for a change of min.insync.replicas that would make it differ between brokers."""
    if kind != RESOURCE_BROKER or MIN_INSYNC_REPLICAS not in changes or not are_kept(image):
        return
    if name != ALL_BROKERS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled. Alter the cluster's default.",
        )
    if changes[MIN_INSYNC_REPLICAS] is None:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled. Set it to another number.",
        )


def forgetting(
    image: MetadataImage, kind: int, name: str, changes: Mapping[str, str | None]
) -> Iterator[VersionedRecord]:
    """The record that goes with a change of min.insync.replicas, of one topic or of all brokers."""
    if MIN_INSYNC_REPLICAS in changes and are_kept(image):
        yield VersionedRecord(m.ClearElrRecord(topic_name=name if kind == RESOURCE_TOPIC else ""), 0)
