"""`ClientQuotas`: brings the quotas of the metadata to effect. A follower of the replica manager, on the loop."""

from __future__ import annotations

import logging

from pybroker.metadata.client_quotas import not_enforced
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class ClientQuotas:
    """A `MetadataPublisher`."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`."""
        if not delta.client_quotas_changed:
            return
        for key in not_enforced(image):
            if key not in self._told:
                self._told.add(key)
                logger.warning("a client quota %s is set: it is kept, but this broker holds nobody to it", key)
