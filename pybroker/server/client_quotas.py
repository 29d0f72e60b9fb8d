"""`ClientQuotas`: brings the quotas of the metadata to effect. A follower of the replica manager, on the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, limits, not_enforced
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.native.broker import QUOTA_SAMPLES_MAX, ByteRates, NativeBroker
from pybroker.native.errors import NativeError

logger = logging.getLogger(__name__)

#: The principal of everybody on a PLAINTEXT listener.
_USER = "ANONYMOUS"


class ClientQuotas:
    """A `MetadataPublisher`. The data plane is told who may produce and fetch how much; the log, once for each key,
    which quotas are set that nobody is held to."""

    def __init__(self, native: NativeBroker, config: Callable[[], BrokerConfig]) -> None:
        self._native = native
        self._config = config
        self._told: set[str] = set()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`."""
        if not delta.client_quotas_changed:
            return
        self._limit(image)
        for key in not_enforced(image):
            if key not in self._told:
                self._told.add(key)
                logger.warning("a client quota %s is set: it is kept, but this broker holds nobody to it", key)

    def _limit(self, image: MetadataImage) -> None:
        produce, fetch = limits(image, _USER, PRODUCER_BYTE_RATE), limits(image, _USER, CONSUMER_BYTE_RATE)
        named = {}
        for name in produce.named | fetch.named:
            produced, fetched = produce.named.get(name, produce.others), fetch.named.get(name, fetch.others)
            named[name] = ByteRates(produced.value, fetched.value, produced.is_shared, fetched.is_shared)
        others = ByteRates(produce.others.value, fetch.others.value, produce.others.is_shared, fetch.others.is_shared)
        config = self._config()
        sample_count = min(config.get_int("quota.window.num"), QUOTA_SAMPLES_MAX)
        try:
            self._native.set_client_quotas(
                named, others, sample_count, 1000 * config.get_int("quota.window.size.seconds")
            )
        except NativeError as error:
            logger.error("clients are held to the quotas of before, as the new ones could not be set: %s", error)
