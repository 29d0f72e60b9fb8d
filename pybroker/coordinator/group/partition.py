"""`group_partition`: which `__consumer_offsets` partition a group lives in. All Kafka brokers must agree on it."""

from __future__ import annotations

from pybroker.coordinator.group.model.name_cache import cached_by_group


def java_string_hash(text: str) -> int:
    """`String.hashCode()` of Java: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@cached_by_group(maxsize=65_536)
def group_partition(group_id: str, partition_count: int) -> int:
    """The partition of a group when the topic has that many."""
    value = java_string_hash(group_id)
    # Java's abs() of the smallest int has no result; Kafka takes 0.
    return 0 if value == -(1 << 31) else abs(value) % partition_count
