"""`RackSelector`: tells the data plane in which racks brokers are, for leaders to send consumers to a near replica
(KIP-392). A follower of the replica manager, on the asyncio loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError

logger = logging.getLogger(__name__)

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The class of Apache Kafka's whose rule is followed here when replica.selector.class names it."""


class RackSelector:
    """A `MetadataPublisher`."""

    def __init__(self, native: NativeBroker, config: Callable[[], BrokerConfig]) -> None:
        self._native = native
        self._config = config
        self._told: dict[int, str] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`."""
        del delta
        racks = self._racks(image)
        if racks == self._told:
            return
        try:
            self._native.set_racks(racks)
        except NativeError as error:
            logger.error("consumers cannot be told which replica is near: %s", error)
        else:
            self._told = racks

    def _racks(self, image: MetadataImage) -> dict[int, str]:
        """The racks of the brokers that serve."""
        if self._config().get("replica.selector.class") != RACK_AWARE:
            return {}
        return {
            each.id: each.rack
            for each in image.cluster.brokers.values()
            if each.rack is not None and not each.fenced and not each.in_controlled_shutdown
        }
