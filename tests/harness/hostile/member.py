"""A member of a group that shows life each second, and what that came to: for checks of what happens beside it."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient

_INTERVAL_S = 1.0
_GROUP = "bystanders"
_SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"


class Member:
    """The only member of its group, on a connection and, as a context manager, a thread of its own. `latencies_s` and
    `errors` have an entry for each heartbeat."""

    def __init__(self, port: int, session_ms: int) -> None:
        self._client = ProtocolClient(port)
        self._session_ms = session_ms
        self._stopped = threading.Event()
        self.latencies_s: list[float] = []
        self.errors: list[int] = []
        self.member_id, self.generation_id = self._join()
        self._thread = threading.Thread(target=self._live)

    def _join(self) -> tuple[str, int]:
        while self._client.call(m.FindCoordinatorRequest(key=_GROUP), 2).error_code:
            time.sleep(0.1)
        member_id = ""
        while True:
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)
            request = m.JoinGroupRequest(
                group_id=_GROUP,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._session_ms,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = self._client.call(request, 5)
            if joined.error_code == 0:
                break
            member_id = joined.member_id
            time.sleep(0.1)
        sync = m.SyncGroupRequest(
            group_id=_GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")],
        )
        assert self._client.call(sync, 3).error_code == 0
        return joined.member_id, joined.generation_id

    def heartbeat(self) -> int:
        """The error code of one more heartbeat."""
        request = m.HeartbeatRequest(group_id=_GROUP, generation_id=self.generation_id, member_id=self.member_id)
        code: int = self._client.call(request, 3).error_code
        return code

    def _live(self) -> None:
        while not self._stopped.is_set():
            started_s = time.monotonic()
            self.errors.append(self.heartbeat())
            self.latencies_s.append(time.monotonic() - started_s)
            self._stopped.wait(_INTERVAL_S)

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """End the connection; the member stays in its group until its session ends."""
        self._client.close()
