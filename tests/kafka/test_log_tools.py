"""`pybroker log` against Apache Kafka's own dump tool, and on a log dir that this broker closed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pybroker.metadata.offline import check_metadata
from pybroker.storage.offline.checks.check import check
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.dump import DumpOptions, dump
from pybroker.storage.offline.layout import FileKind, file_kind, open_target
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import fetch, run_tool

KAFKA_DIR = Path(__file__).parents[1] / "unit" / "storage" / "offline" / "data" / "kafka-4.3.0"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPARED = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
COMPARED += (FileKind.PRODUCER_SNAPSHOT,)
FIELD = re.compile(r"(\w+): (\S+)")


def as_kafka_says(item: dict[str, Any]) -> str | None:
    """One item of our dump, in the words of Kafka's tool; None for what it does not print."""
    match item["type"]:
        case "file":
            return f"Dumping {item['path']}"
        case "batch":
            return batch_line(item)
        case "record":
            return record_line(item)
        case "index":
            return f"offset: {item['offset']} position: {item['position']}"
        case "time-index":
            return f"timestamp: {item['timestamp_ms']} offset: {item['offset']}"
        case "aborted-transaction":
            names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
            return " ".join(f"{camel(name)}: {item[name]}" for name in names)
        case "producer":
            return producer_line(item)
    raise AssertionError(f"{item['type']} is not what these files hold")


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def batch_line(item: dict[str, Any]) -> str:
    sequence = item["base_sequence"]
    # Kafka's tool counts from -1 where there is no sequence, except in control batches.
    last = sequence if item["control"] else sequence + item["last_offset"] - item["base_offset"]
    return (
        f"baseOffset: {item['base_offset']} lastOffset: {item['last_offset']} count: {item['record_count']} "
        f"baseSequence: {sequence} lastSequence: {last} producerId: {item['producer_id']} "
        f"producerEpoch: {item['producer_epoch']} partitionLeaderEpoch: {item['leader_epoch']} "
        f"isTransactional: {str(item['transactional']).lower()} isControl: {str(item['control']).lower()} "
        f"deleteHorizonMs: OptionalLong.empty position: {item['position']} "
        f"{item['timestamp_type']}: {item['max_timestamp_ms']} size: {item['size_bytes']} magic: 2 "
        f"compresscodec: {item['codec']} crc: {item['crc']} isvalid: {str(item['valid']).lower()}"
    )


def record_line(item: dict[str, Any]) -> str:
    """Offsets, times, keys and payloads; sizes and sequences are left out of the comparison."""
    line = f"| offset: {item['offset']} CreateTime: {item['timestamp_ms']}"
    if "record" in item:
        return f"{line} endTxnMarker: {item['record']} coordinatorEpoch: {item['value']['coordinator_epoch']}"
    key = "" if item["key"] is None else f" key: {item['key']}"
    return f"{line}{key}" + ("" if item["value"] is None else f" payload: {item['value']}")


def producer_line(item: dict[str, Any]) -> str:
    first = item["transaction_first_offset"]
    has_batch = item["last_offset"] >= 0
    batch = (
        f" firstSequence: {item['last_sequence'] - item['offset_delta']} lastSequence: {item['last_sequence']} "
        f"lastOffset: {item['last_offset']} offsetDelta: {item['offset_delta']} timestamp: {item['timestamp_ms']}"
    )
    return (
        f"producerId: {item['producer_id']} producerEpoch: {item['producer_epoch']} "
        f"coordinatorEpoch: {item['coordinator_epoch']} "
        f"currentTxnFirstOffset: {'OptionalLong.empty' if first < 0 else f'OptionalLong[{first}]'} "
        f"lastTimestamp: {item['timestamp_ms']}" + (batch if has_batch else "")
    )


def kafka_lines(files: list[Path]) -> Iterator[str]:
    """What Kafka's tool prints of `files`, without what ours does not compare."""
    done = run_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    for line in done.stdout.decode().splitlines():
        if not line.startswith("Log starting offset"):
            yield re.sub(r" keySize: .* headerKeys: \[\]", "", line)


def normal(line: str) -> str:
    """A sequence of none is counted on from by Kafka's tool; that is nothing that the file says."""
    return re.sub(r"baseSequence: -1 lastSequence: -?\d+", "baseSequence: -1", line.rstrip())


def test_dump_says_what_kafkas_tool_says() -> None:
    fetch()
    topics = ("plain-0", "transactions-0", "compacted-0", "trimmed-0")
    files = [
        path
        for topic in topics
        for path in sorted((KAFKA_DIR / topic).iterdir())
        if file_kind(path) in COMPARED and path.stat().st_size > 0
    ]
    options = DumpOptions(records=True)
    ours = [line for path in files for item in dump(path, options) if (line := as_kafka_says(item)) is not None]
    kafkas = list(kafka_lines(files))
    assert len(ours) > 600
    assert [normal(line) for line in ours] == [normal(line) for line in kafkas]


#: Kafka's tool names what the records number.
STATUSES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


def test_decoded_records_are_those_of_kafkas_decoders() -> None:
    """Keys and values of coordinator records, as JSON; names are in Kafka's spelling there."""
    fetch()
    path = KAFKA_DIR / "__transaction_state-0" / f"{0:020}.log"
    done = run_tool(DUMP, "--transaction-log-decoder", "--deep-iteration", "--files", str(path))
    kafkas = []
    for line in done.stdout.decode().splitlines():
        if match := re.search(r" key: (\{.*\}) payload: (\{.*\})$", line):
            kafkas.append((json.loads(match[1])["data"], json.loads(match[2])["data"]))
    records = [item for item in dump(path, DumpOptions(records=True)) if item["type"] == "record"]
    assert len(records) == len(kafkas) == 80
    for item, (key, value) in zip(records, kafkas, strict=True):
        assert key == {"transactionalId": item["key"]["transactional_id"]}
        value["transactionStatus"] = STATUSES.index(value["transactionStatus"])
        ours = {camel(name): each for name, each in item["value"].items()}
        assert {name: each for name, each in value.items() if not isinstance(each, list)}.items() <= ours.items()


def test_a_dir_that_we_closed_and_one_that_we_did_not_are_clean(tmp_path: Path) -> None:
    """Nothing is wrong in what this broker leaves; a killed one may leave preallocated space, and no more."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    log_dir = tmp_path / "data"
    for start in range(2):
        with BrokerProcess(log_dir) as broker:
            config = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
            if start == 0:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
                admin.create_topics([NewTopic("kept", 2, 1, config=config)])["kept"].result(30)
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "log_level": 0}
                producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
                for number in range(300):
                    producer.produce("kept", bytes([number % 256]) * (number % 2000), f"{number % 7}")
                assert producer.flush(30) == 0
                del producer
            if start == 1:
                broker.kill()
        report = Report()
        check(open_target(log_dir), report, deep=True, check_metadata=check_metadata)
        assert report.faults == []
        assert ({"unclean"} if start else set()) == {each.kind for each in report.findings} & {"unclean"}
