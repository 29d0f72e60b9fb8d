"""A flipped bit in what a broker had synced: that batch is refused, others are served, and the log says so once."""

from __future__ import annotations

from confluent_kafka import Producer

from pybroker.protocol.errors import ErrorCode
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess

BATCH_COUNT = 9
DAMAGED = 4
LENGTH_POSITION = 8


def fetch(client: ProtocolClient, offset: int) -> tuple[int, int]:
    """(error, offset of the first batch that comes; -1 for none)."""
    answer = client.fetch("t", offset)
    records = bytes(answer.records or b"")
    return answer.error_code, int.from_bytes(records[:8], "big") if records else -1


def test_a_damaged_batch_is_refused_and_its_neighbours_are_served() -> None:
    with BrokerProcess() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for _ in range(BATCH_COUNT):
            producer.produce("t", bytes(200), partition=0)
            producer.flush(30)
        broker.stop()
        segment = broker.log_dir / "t-0" / "00000000000000000000.log"
        data = bytearray(segment.read_bytes())
        position = len(data) // BATCH_COUNT * DAMAGED
        data[position + LENGTH_POSITION] ^= 1
        segment.write_bytes(data)
        broker.start()
        with ProtocolClient(broker.port) as client:
            for offset in list(range(BATCH_COUNT)) * 2:
                expected = (ErrorCode.CORRUPT_MESSAGE, -1) if offset == DAMAGED else (ErrorCode.NONE, offset)
                assert fetch(client, offset) == expected
        broker.stop()
        said = broker.output_path.read_text()
        assert said.count(f"{segment} is damaged at position {position}") == 1
        assert said.count(f"t-0: offset {DAMAGED} cannot be fetched, because its batch is damaged") == 1
        # As all was synced, the second start finds what the first one left.
        assert segment.read_bytes() == data
