"""Session deadlines of a whole broker, whose loop stands still while heartbeats and requests of others come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.coordinator.deadline_clock import DeadlineClock
from pybroker.protocol import messages as m

SESSION_MS = 1_500
OTHERS = 200
UNKNOWN_MEMBER_ID = 25


class Member:
    """The only one of its group."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._request: Any = None

    async def join(self) -> None:
        finder = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        while (await self._client.call(finder, 4)).coordinators[0].error_code:  # noqa: ASYNC110 - the broker decides
            await asyncio.sleep(0.02)
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")
        request = m.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        while (joined := await self._client.call(request, 5)).error_code:
            request.member_id = joined.member_id
            await asyncio.sleep(0.02)
        assigned = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
        group = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        assert (await self._client.call(m.SyncGroupRequest(assignments=[assigned], **group), 3)).error_code == 0
        self._request = m.HeartbeatRequest(**group)

    async def heartbeat(self) -> int:
        code: int = (await self._client.call(self._request, 3)).error_code
        return code

    async def send_heartbeat(self) -> None:
        await self._client.send(12, 3, self._request.encode(3))

    async def answer(self) -> int:
        # After header and throttle time.
        return int.from_bytes((await self._client.receive())[8:10], "big")


def _crowd(port: int) -> contextlib.ExitStack:
    """Connections that have each asked for something. Closed at the end."""
    header = m.RequestHeader(request_api_key=32, request_api_version=1, correlation_id=1, client_id="c").encode(1)
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    frame = header + m.DescribeConfigsRequest(resources=[resource]).encode(1)
    crowd = contextlib.ExitStack()
    for _ in range(OTHERS):
        one = crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
        one.sendall(struct.pack(">i", len(frame)) + frame)
    return crowd


@pytest.mark.parametrize("clock_moves", [True, False], ids=["deadlines move", "by their order alone"])
def test_a_heartbeat_behind_a_crowd_counts_though_the_loop_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock_moves: bool
) -> None:
    if not clock_moves:
        monkeypatch.setattr(DeadlineClock, "look", lambda _: 0)

    async def run() -> None:
        config = config_for(
            tmp_path, group_min_session_timeout_ms=str(SESSION_MS), group_initial_rebalance_delay_ms="0"
        )
        async with running(config) as daemon, connected(daemon) as client:
            member = Member(client)
            await member.join()
            await asyncio.sleep(SESSION_MS / 2_000)
            with _crowd(daemon.listeners[0].port):
                await member.send_heartbeat()
                time.sleep(2 * SESSION_MS / 1_000)  # noqa: ASYNC251 - so the loop stands still
                assert await member.answer() == 0
            assert await member.heartbeat() == 0
            # Who shows no life is late as ever.
            await asyncio.sleep(SESSION_MS / 1_000 + 1)
            assert await member.heartbeat() == UNKNOWN_MEMBER_ID

    asyncio.run(run())
