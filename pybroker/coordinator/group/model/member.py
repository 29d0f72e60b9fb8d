"""One member of a classic group, and the requests of it that wait for an answer."""

from __future__ import annotations

from collections.abc import Callable, Container

from pybroker.coordinator.group.model.memory import MEMBER_BYTES, protocols_bytes, text_bytes
from pybroker.protocol import messages as m

#: Answers a parked request; called at most once, never re-enters the state machine.
JoinReply = Callable[[m.JoinGroupResponse], None]
SyncReply = Callable[[m.SyncGroupResponse], None]


class ClassicGroupMember:
    """The coordinator's knowledge of a member.

    `protocols` lists (name, metadata) in the member's order of preference. `join_reply` and `sync_reply` are set while
    a JoinGroup or SyncGroup of this member is parked. `is_new` holds until the member has been answered for the first
    time: it does not know its id yet, so it cannot send heartbeats. `held_bytes` is what the group has counted of it.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "held_bytes",
        "is_new",
        "join_reply",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: list[tuple[str, bytes]],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        self.is_new = False
        self.held_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The member's size in memory."""
        names = text_bytes(self.member_id, self.group_instance_id, self.client_id, self.protocol_type)
        return MEMBER_BYTES + names + protocols_bytes(self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for that protocol, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol_name!r}")

    def vote(self, candidates: Container[str]) -> str:
        """The first of the member's protocols that is among `candidates`."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} supports none of the candidate protocols")

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member whose request is parked here is alive: its client waits for us, not we for it."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)
