"""A process of an honest client that measures what it feels: heartbeats of a group member, and small produces.

    python -m tests.harness.hostile.bystander PORT heartbeats|produce --seconds 20

It prints JSON: the latencies in milliseconds as a count, `p50`, `p99` and `max`, and `errors`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from pybroker.protocol import messages as m
from pybroker.protocol.record_batch import build_plain
from pybroker.testing.protocol_client import ProtocolClient

#: The topic that produces go to; it exists.
TOPIC = "bystander"
_HEARTBEAT_PAUSE_SECONDS = 0.05
_PRODUCE_PAUSE_SECONDS = 0.005
_SESSION_MS = 6_000
_VALUE_BYTES = 1_000


class _Member:
    """A group of one. Its session is the shortest that a broker takes."""

    def __init__(self, port: int) -> None:
        self._client = ProtocolClient(port)
        self._group = f"bystander-{time.time_ns()}"
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = m.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            protocol_type="consumer",
            protocols=[protocol],
        )
        found = self._client.call(m.FindCoordinatorRequest(key=self._group), 3)
        while found.error_code != 0:
            time.sleep(0.1)
            found = self._client.call(m.FindCoordinatorRequest(key=self._group), 3)
        joined = self._client.call(join, 3)
        while joined.error_code != 0:
            time.sleep(0.1)
            joined = self._client.call(join, 3)
        self._beat = m.HeartbeatRequest(
            group_id=self._group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        synced = self._client.call(
            m.SyncGroupRequest(
                group_id=self._group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
            ),
            2,
        )
        if synced.error_code != 0:
            raise SystemExit(f"the group could not be formed: error {synced.error_code}")

    def beat(self) -> int:
        """Kafka's error code of one heartbeat."""
        code: int = self._client.call(self._beat, 3).error_code
        return code


class _Producer:
    """One record of 1,000 bytes at a time, acks=all."""

    def __init__(self, port: int) -> None:
        self._client = ProtocolClient(port)
        batch = build_plain(0, [(b"k", bytes(_VALUE_BYTES))], timestamp_ms=int(time.time() * 1000))
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
        self._request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    def produce(self) -> int:
        """Kafka's error code of one produce."""
        code: int = self._client.call(self._request, 9).responses[0].partition_responses[0].error_code
        return code


def measure(step: Callable[[], int], pause_seconds: float, seconds: float) -> dict[str, object]:
    """Latencies of `step`, called again and again with a pause."""
    taken_ms: list[float] = []
    errors: list[int] = []
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        code = step()
        taken_ms.append((time.monotonic() - begin) * 1e3)
        if code != 0:
            errors.append(code)
        time.sleep(pause_seconds)
    taken_ms.sort()

    def quantile(share: float) -> float:
        return round(taken_ms[min(int(len(taken_ms) * share), len(taken_ms) - 1)], 3)

    return {
        "count": len(taken_ms),
        "p50": quantile(0.5),
        "p99": quantile(0.99),
        "max": quantile(1.0),
        "errors": errors,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("what", choices=["heartbeats", "produce"])
    parser.add_argument("--seconds", type=float, default=20.0)
    wanted = parser.parse_args()
    if wanted.what == "heartbeats":
        found = measure(_Member(wanted.port).beat, _HEARTBEAT_PAUSE_SECONDS, wanted.seconds)
    else:
        found = measure(_Producer(wanted.port).produce, _PRODUCE_PAUSE_SECONDS, wanted.seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
