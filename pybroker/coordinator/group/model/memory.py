"""How much memory the members of all groups of a broker hold: their metadata, assignments and names.

A member stays until its session ends, up to `group.max.session.timeout.ms`, whether its client is connected or not.
So what JoinGroup and SyncGroup requests leave behind is bounded here and not by the number of connections. On the
asyncio loop thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

MEMBER_BYTES = 1024
"""What a member costs beside its names, protocols and assignment: its object, its timer, its places in tables."""
PROTOCOL_BYTES = 256
"""What a protocol costs beside its name and metadata."""
PENDING_BYTES = 512
"""What a member that has only been given its id costs beside that id."""

_SMALL_BYTES = 64 << 10
#: This part of the limit is for small requests alone: members with large metadata must not keep ordinary ones out.
_RESERVE_DIVISOR = 4


class GroupMemory:
    """`held_bytes` of at most `limit_bytes`, but for what the log says at load, which is taken in whatever it is."""

    __slots__ = ("held_bytes", "limit_bytes", "refused_count")

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        #: Requests that were refused for want of room.
        self.refused_count = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more may be held. A change that needs no more than before is always allowed. A refusal is
        counted."""
        if more_bytes <= 0:
            return True
        limit_bytes = self.limit_bytes
        if more_bytes > _SMALL_BYTES:
            limit_bytes -= limit_bytes // _RESERVE_DIVISOR
        if self.held_bytes + more_bytes <= limit_bytes:
            return True
        self.refused_count += 1
        return False


def text_bytes(*texts: str | None) -> int:
    """The size of strings in memory."""
    return sum(sys.getsizeof(each) for each in texts if each is not None)


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """The size of a member's protocols in memory."""
    return sum(PROTOCOL_BYTES + sys.getsizeof(name) + len(metadata) for name, metadata in protocols)


def pending_bytes(member_id: str) -> int:
    """The size of a member that has only been given its id."""
    return PENDING_BYTES + text_bytes(member_id)


def assignments_bytes(assignments: Mapping[str, bytes]) -> int:
    """The size of a SyncGroup's assignments in memory."""
    return sum(PROTOCOL_BYTES + sys.getsizeof(member_id) + len(given) for member_id, given in assignments.items())
