"""`DynamicConfig`: a broker's configuration with the dynamic values of an image. Pure, on one thread."""

from __future__ import annotations

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage


class DynamicConfig:
    """Resolved anew only when the values have changed."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self._resolved = static
        self._layers: tuple[object, object] | None = None

    def of(self, image: MetadataImage) -> BrokerConfig:
        """The configuration of this broker by `image`."""
        layers = image.config(RESOURCE_BROKER, ""), image.config(RESOURCE_BROKER, str(self._static.node_id))
        # The image shares unchanged parts, so comparing maps is cheap; resolving the configuration is not.
        if layers != self._layers:
            self._resolved = self._static.with_dynamic(*layers)
            self._layers = layers
        return self._resolved
