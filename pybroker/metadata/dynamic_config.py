"""`DynamicConfig`: a broker's configuration with the dynamic values of an image. On one thread."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage

logger = logging.getLogger(__name__)


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
            self._resolved = self._usable(*layers)
            self._layers = layers
        return self._resolved

    def _usable(self, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """Dynamic values that contradict each other, or what the file says now, have no effect, as in Kafka: only a
        broker that runs can be told to forget them."""
        layers = dict(default), dict(own)
        while True:
            try:
                return self._static.with_dynamic(*layers)
            except ConfigError as error:
                given = {*layers[0], *layers[1]}
                ignored = [key for key in error.keys if key in given] or sorted(given)
                if not ignored:
                    raise
                logger.error("%s; ignored until they are altered: the dynamic values of %s", error, ", ".join(ignored))
                for key in ignored:
                    for layer in layers:
                        layer.pop(key, None)
