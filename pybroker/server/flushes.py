"""Whether the log dirs can keep what durable acknowledgements promise: looked at once, when the broker starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.metadata.image import RESOURCE_TOPIC, MetadataImage
from pybroker.profiles.measurement.at_start import judge_log_dir
from pybroker.profiles.measurement.flush import NOT_SENT, SUSPICIOUS
from pybroker.storage.dirs.log_directory import LogDirectory

logger = logging.getLogger(__name__)


def promises_durability(config: BrokerConfig, image: MetadataImage) -> bool:
    """Whether the broker, or any topic, has a durability other than none."""
    overrides = {tuple(values.items()) for (kind, _), values in image.configs.items() if kind == RESOURCE_TOPIC}
    return any(TopicConfig.resolve(dict(each), config).durability != "none" for each in ((), *overrides))


def judge_flushes(directories: Sequence[LogDirectory], backend: str) -> None:
    """Set `flush` of each, and say in the broker's log what speaks against it. Blocking, for some 50 ms each."""
    for directory in directories:
        directory.flush = found = judge_log_dir(directory.path, backend)
        if found.name in SUSPICIOUS:
            logger.warning("%s: what is acknowledged as durable may go with the power: %s", directory.path, found.why)
        elif found.name == NOT_SENT:
            logger.info("%s: %s", directory.path, found.why)
