"""How many elements an operation goes through: what a request names, or makes of a few names. Pure.

The count is for a comparison with `limit`, and stops beyond it.
"""

from __future__ import annotations

from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.runtime import element_count


def created_partitions(request: m.CreateTopicsRequest, limit: int) -> int:
    """CreateTopics: one topic may have as many partitions as one operation may have records."""
    named = element_count(request, limit)
    return named if named > limit else named + sum(max(each.num_partitions, 0) for each in request.topics)


def added_partitions(request: m.CreatePartitionsRequest, limit: int) -> int:
    """CreatePartitions."""
    named = element_count(request, limit)
    return named if named > limit else named + sum(max(each.count, 0) for each in request.topics)


def elected_partitions(request: m.ElectLeadersRequest, image: MetadataImage, limit: int) -> int:
    """ElectLeaders, which may be for all partitions there are."""
    return all_partitions(image) if request.topic_partitions is None else element_count(request, limit)


def all_partitions(image: MetadataImage) -> int:
    """Partitions of all topics."""
    return sum([len(each.partitions) for each in image.topics.by_id.values()])
