"""Makes `data/kafka_groups.json`: the script of `scenario.py` against a real Apache Kafka of the reference version.

Run by hand, with Kafka's jars at hand: `python tests/unit/coordinator/group/make_golden.py`.
"""

from __future__ import annotations

import asyncio
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import scenario

from pybroker.protocol import messages as m
from pybroker.protocol.kafka_version import KAFKA_VERSION
from tests.harness.kafka import KafkaBroker


class Client:
    """Sends requests to a broker on named connections, one at a time on each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def call(self, connection: str, api_key: int, version: int, request: Any) -> Any:
        if connection not in self._streams:
            self._streams[connection] = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams[connection]
        header = m.RequestHeader(
            request_api_key=api_key, request_api_version=version, correlation_id=1, client_id=connection
        )
        frame = header.encode(m.request_header_version(api_key, version)) + request.encode(version)
        writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        _, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
        return m.response_class(api_key).decode(version, data, position)[0]


async def record(port: int) -> tuple[bytes, list[tuple[str, str]]]:
    """The topic's id, and the script's steps with Kafka's responses."""
    call = Client(port).call
    topic = m.CreateTopicsRequest.CreatableTopic(name=scenario.TOPIC, num_partitions=3, replication_factor=1)
    created = await call("admin", 19, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    while True:
        found = await call("admin", 10, 4, m.FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]))
        if found.coordinators[0].error_code == 0:
            break
        await asyncio.sleep(0.2)
    # The coordinator loads its partition after the topic's metadata is out.
    await asyncio.sleep(2)
    topic_id = created.topics[0].topic_id

    async def pause() -> None:
        await asyncio.sleep(0.2)

    normalise = scenario.Normaliser()
    return topic_id, [(name, normalise(repr(answer))) for name, answer in await scenario.run(call, topic_id, pause)]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="group-golden-") as directory:
        broker = KafkaBroker(Path(directory) / "data", overrides={"offsets.topic.num.partitions": "1"})
        try:
            topic_id, steps = asyncio.run(record(broker.port))
        finally:
            broker.stop()
        segment = (broker.log_dir / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    golden = {"kafka_version": KAFKA_VERSION, "topic_id": topic_id.hex(), "steps": steps, "segment": segment.hex()}
    path = Path(__file__).parent / "data" / "kafka_groups.json"
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
