"""The consumers' own metadata inside JoinGroup: just the topics a member subscribes to.

The group protocol treats member metadata as opaque. The coordinator looks into that of protocol type `consumer` for
one reason: offsets of a topic that a live group is subscribed to must neither expire nor be deleted.
"""

from __future__ import annotations

import struct

#: The protocol type of groups of consumers.
PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscription: bytes) -> list[str]:
    """Topics of a serialized ConsumerProtocolSubscription of any version; ValueError when it is malformed."""
    try:
        version, count = struct.unpack_from(">hi", subscription, 0)
        if version < 0 or not 0 <= count <= len(subscription) // 2:
            raise ValueError(f"subscription of version {version} with {count} topics")
        position = 6
        topics = []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", subscription, position)
            position += 2
            if length < 0 or position + length > len(subscription):
                raise ValueError(f"topic name of {length} bytes at {position}")
            topics.append(subscription[position : position + length].decode())
            position += length
    except struct.error as error:
        raise ValueError(f"subscription is cut short: {error}") from error
    return topics
