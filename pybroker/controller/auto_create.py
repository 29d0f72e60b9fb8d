"""Topics that come into being by being used: what they are created with. Pure."""

from __future__ import annotations

from pybroker.config.broker import BrokerConfig
from pybroker.controller.topic_names import GROUP_METADATA_TOPIC
from pybroker.protocol import messages as m


def auto_create_request(config: BrokerConfig, names: list[str], broker_count: int) -> m.CreateTopicsRequest:
    """A CreateTopics request for `names`: internal topics with the settings of their coordinator, others with this
    broker's defaults.

    The replication factor of an internal topic is capped to `broker_count` where the broker has no others beside it: a
    lone broker can serve groups out of the box. In a cluster these are just the first brokers to have started, and the
    topic would keep so few replicas. So it waits for the others, as in Kafka.
    """
    return m.CreateTopicsRequest(topics=[_topic(config, name, broker_count) for name in names])


def _topic(config: BrokerConfig, name: str, broker_count: int) -> m.CreateTopicsRequest.CreatableTopic:
    if name != GROUP_METADATA_TOPIC:
        # Not the defaults of whoever creates it: controllers elsewhere may have others.
        return m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=config.get_int("num.partitions"),
            replication_factor=config.get_int("default.replication.factor"),
        )
    factor = config.get_int("offsets.topic.replication.factor")
    if not config.joins_quorum:
        factor = max(1, min(factor, broker_count))
    # Old records of a key are worthless, and followers and readers need the batches as they were written.
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
    }
    return m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=config.get_int("offsets.topic.num.partitions"),
        replication_factor=factor,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
