"""`pybroker log` on real dirs: Apache Kafka's are clean, what was repaired is opened by both, and checking is fast."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "storage" / "offline"))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "storage" / "offline" / "data"))

from make_kafka_dir import OVERRIDES, TOPICS, one_round
from offline_dirs import check_report, copy_of_kafka_dir, flip, intact_batches

from pybroker.metadata.offline import topic_ids
from pybroker.protocol.record_batch import Record, build
from pybroker.storage.offline.layout import open_target
from pybroker.storage.offline.repairs.repair_dir import repair
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker
from tests.harness.log_dirs import findings

# The metadata log of the dir in git names its controller's endpoint.
CONTROLLER_PORT = 12701
NODE_ID = 1
FLIPPED = {f"plain-0/{60:020}.log": 8 * 200, f"plain-0/{180:020}.log": 8 * 900, f"trimmed-0/{45:020}.log": 8 * 100}
BIG_BYTES = 1 << 30
LEAST_BYTES_PER_SECOND = 1e9
MOST_RESIDENT_BYTES = 80 << 20


def test_a_kafka_that_was_closed_or_killed_leaves_nothing_wrong(tmp_path: Path) -> None:
    """Apache Kafka itself, with every kind of topic; a killed one leaves torn or preallocated ends at most."""
    from confluent_kafka.admin import AdminClient, NewTopic

    log_dir = tmp_path / "data"
    with KafkaBroker(log_dir, overrides=OVERRIDES) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, 1, 1, config=TOPICS[name]) for name in TOPICS]).values():
            future.result(30)
        one_round(broker, 0)
        controller_port = broker.controller_port
    assert check_report(log_dir, deep=True).findings == []
    with KafkaBroker(log_dir, overrides=OVERRIDES, controller_port=controller_port) as broker:
        one_round(broker, 1)
        broker.kill()
    kinds = {finding.kind for finding in check_report(log_dir, deep=True).faults}
    assert kinds <= {"torn-tail"}, kinds


def _records(bootstrap: str, topic: str) -> list[bytes]:
    """Everything that a consumer gets, as offset and value."""
    command = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-o", "beginning", "-f", "%o %s\\n"]
    done = subprocess.run([*command, "-X", "check.crcs=true"], capture_output=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.fixture
def broken_and_repaired(tmp_path: Path) -> tuple[Path, int]:
    """A repaired log dir, and how many batches it lost."""
    log_dir = copy_of_kafka_dir(tmp_path)
    for name, bit in FLIPPED.items():
        flip(log_dir / name, bit)
    (log_dir / "plain-0" / f"{13:020}.index").write_bytes(os.urandom(80))
    (log_dir / "transactions-0" / f"{15:020}.snapshot").write_bytes(b"nonsense")
    output = tmp_path / "repaired"
    result = repair(open_target(log_dir), output, topic_ids)
    assert len(result.dropped) == len(FLIPPED)
    return output, len(result.dropped)


def test_kafka_and_we_open_what_was_repaired(broken_and_repaired: tuple[Path, int], tmp_path: Path) -> None:
    """Both serve every record that was kept, and Kafka's dump tool finds nothing wrong in the files."""
    output, _ = broken_and_repaired
    # Gaps in offsets are what cleaning and damage left.
    assert findings(output, compacted=(*TOPICS, "__consumer_offsets")) == []
    for_us = shutil.copytree(output, tmp_path / "for-us")
    with KafkaBroker(output, node_id=NODE_ID, controller_port=CONTROLLER_PORT, overrides=OVERRIDES) as kafka:
        kafkas = {topic: _records(kafka.bootstrap, topic) for topic in TOPICS}
    voters = {"controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{CONTROLLER_PORT}", "node.id": str(NODE_ID)}
    with BrokerProcess(for_us, overrides={**OVERRIDES, **voters}) as broker:
        ours = {topic: _records(broker.bootstrap, topic) for topic in TOPICS}
    assert ours == kafkas
    assert len(ours["plain"]) > 200
    assert {finding.kind for finding in check_report(output).faults} == {"offset-gap"}
    assert {finding.kind for finding in check_report(for_us).faults} == {"offset-gap"}


def test_reads_outside_of_a_flipped_bit_are_not_affected(tmp_path: Path) -> None:
    """A bit flips in one sealed batch: all other records are read as before, from the broker as from the files."""
    from confluent_kafka import Consumer, TopicPartition

    log_dir = copy_of_kafka_dir(tmp_path)
    voters = {"controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{CONTROLLER_PORT}", "node.id": str(NODE_ID)}
    with BrokerProcess(log_dir, overrides={**OVERRIDES, **voters}) as broker:
        before = _records(broker.bootstrap, "plain")
    flip(log_dir / "plain-0" / f"{60:020}.log", 8 * 200)
    assert len(intact_batches(log_dir / "plain-0")) == 125
    with BrokerProcess(log_dir, overrides={**OVERRIDES, **voters}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "outside", "enable.auto.commit": False}
        consumer = Consumer({**settings, "check.crcs": False, "log_level": 0})
        after = []
        for start, end in ((0, 61), (63, len(before))):
            consumer.assign([TopicPartition("plain", 0, start)])
            while not after or int(after[-1].split()[0]) < end - 1:
                message = consumer.poll(10)
                assert message is not None and message.error() is None
                if message.offset() < end:
                    after.append(b"%d %s" % (message.offset(), message.value()))
        consumer.close()
    assert after == [line for line in before if not 61 <= int(line.split()[0]) < 63]


# The command, which says at its end what the kernel knows of it. Of a child that includes what its parent held.
AND_ITS_STATUS = """
import atexit, pathlib, runpy, sys
atexit.register(lambda: print(pathlib.Path("/proc/self/status").read_text(), file=sys.stderr))
runpy.run_module("pybroker", run_name="__main__")
"""


@pytest.fixture
def big_partition() -> Iterator[Path]:
    """1 GiB in one segment of 16 KiB batches, in memory."""
    directory = Path("/dev/shm") / f"pybroker-verify-{os.getpid()}" / "big-0"
    directory.mkdir(parents=True)
    batch = bytearray(build(0, 0, [Record(None, os.urandom(100)) for _ in range(148)], timestamp_ms=1000))
    offset = position = 0
    index = []
    with open(directory / f"{0:020}.log", "wb") as log:
        while position < BIG_BYTES:
            # The base offset is outside of the CRC.
            batch[:8] = struct.pack(">q", offset)
            if position:
                index.append(struct.pack(">ii", offset + 147, position))
            log.write(batch)
            offset, position = offset + 148, position + len(batch)
    (directory / f"{0:020}.index").write_bytes(b"".join(index))
    (directory / f"{0:020}.timeindex").write_bytes(struct.pack(">qi", 1000, 147))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    yield directory
    shutil.rmtree(directory.parent)


def test_checking_is_as_fast_as_the_crc_and_takes_little_memory(big_partition: Path) -> None:
    seconds = []
    for _ in range(3):
        started = time.process_time()
        assert check_report(big_partition).faults == []
        seconds.append(time.process_time() - started)
    speed = BIG_BYTES / min(seconds)
    print(f"check: {speed / 1e6:,.0f} MB/s")
    assert speed >= LEAST_BYTES_PER_SECOND
    for command in (("check",), ("dump",), ("stats", "--deep")):
        done = subprocess.run(
            [sys.executable, "-c", AND_ITS_STATUS, "log", *command, str(big_partition)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
        most_kib = next(int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("VmHWM:"))
        print(f"{command[0]}: {most_kib / 1024:.0f} MiB resident")
        assert most_kib * 1024 <= MOST_RESIDENT_BYTES
