"""What the metadata makes of partitions, over the real data plane."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from replica_setup import NOBODY, NODE_ID, SOMEBODY_ELSE, TOPIC_ID, refused, setup

from pybroker.metadata.image import MetadataImage
from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition, PartitionPosition
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication import departures, log_repair
from pybroker.replication.partition_roles import PartitionRoles
from pybroker.storage.files import clean_shutdown
from pybroker.storage.logs.log_manager import LogManager
from tests.harness.look_counter import LookCounter


def test_a_partition_led_here_takes_and_gives_records(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            assert [await made.append(), await made.append()] == [0, 1]
            data = await made.replicas.read("t", 0, 0, 1 << 20)
            assert [batch.base_offset for batch in record_batch.parse(data)] == [0, 1]
            one = await made.replicas.read("t", 0, 1, 1)
            assert [batch.base_offset for batch in record_batch.parse(one)] == [1], "at least one, however small"
            assert await made.replicas.read("t", 0, 2, 100) == b""
            assert (made.replicas.log_start_offset("t", 0), made.replicas.high_watermark("t", 0)) == (0, 2)
            with pytest.raises(KafkaError) as failure:
                await made.append(bytes(2 << 20))
            assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE

    asyncio.run(run())


def test_a_batch_from_when_larger_ones_were_allowed_is_read(tmp_path: Path) -> None:
    """And nobody takes a buffer that is too small for a disk that fails."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            large = bytes(500_000)
            assert await made.append(large) == 0
            limit = m.ConfigRecord(resource_type=2, resource_name="t", name="max.message.bytes", value="1000")
            await made.publish(limit)
            (batch,) = record_batch.parse(await made.replicas.read("t", 0, 0, 1))
            assert batch.records[0].value == large
            made.take_events()
            assert made.offline_events == []

    asyncio.run(run())


def test_leadership_comes_and_goes(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            refused(lambda: made.replicas.state("t", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await made.create()
            made.replicas.check_epoch("t", 0, 0)
            await made.elect(NOBODY)
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            with pytest.raises(KafkaError):
                await made.append()
            await made.elect(NODE_ID)
            made.replicas.check_epoch("t", 0, 2)
            made.replicas.check_epoch("t", 0, -1)
            refused(lambda: made.replicas.check_epoch("t", 0, 1), ErrorCode.FENCED_LEADER_EPOCH)
            refused(lambda: made.replicas.check_epoch("t", 0, -2), ErrorCode.FENCED_LEADER_EPOCH)
            refused(lambda: made.replicas.check_epoch("t", 0, 3), ErrorCode.UNKNOWN_LEADER_EPOCH)
            assert await made.append() == 0
            assert made.replicas.epoch_end("t", 0, 2) == (2, 1)
            await made.elect(SOMEBODY_ELSE, replicas=[SOMEBODY_ELSE], isr=[SOMEBODY_ELSE])
            assert not (tmp_path / "t-0").exists(), "moved away"
            assert made.follower.led == [True, False, True, False]

    asyncio.run(run())


def test_before_its_registration_a_broker_only_opens(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, leads=False) as made:
            await made.create()
            assert (tmp_path / "t-0").is_dir()
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert made.follower.led == []
            made.replicas.allow_leading()
            await made.elect(NODE_ID)
            assert await made.append() == 0
            assert made.follower.led == [True]

    asyncio.run(run())


def test_one_that_cannot_be_opened_does_not_stand_in_the_way_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t-1").write_text("a file where a directory should be")

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create(partition_count=3)
            assert await made.append() == 0
            assert made.replicas.high_watermark("t", 2) == 0
            refused(lambda: made.replicas.state("t", 1), ErrorCode.KAFKA_STORAGE_ERROR)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            refused(lambda: made.replicas.state("t", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            (tmp_path / "t-1").unlink()
            await made.create(partition_count=3)
            assert made.replicas.high_watermark("t", 1) == 0

    asyncio.run(run())
    assert "t-1 cannot be opened" in caplog.text


def test_one_that_cannot_be_led_does_not_stand_in_the_way_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            lead = NativePartition.lead

            def fail_once(native: NativePartition, leader_epoch: int) -> None:
                monkeypatch.setattr(NativePartition, "lead", lead)
                raise NativeError(-errno.ENOMEM)

            monkeypatch.setattr(NativePartition, "lead", fail_once)
            await made.create(partition_count=2)
            codes = []
            for index in range(2):
                try:
                    made.replicas.state("t", index)
                except KafkaError as failure:
                    codes.append(failure.code)
            assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "that of one; the other is led"
            assert made.follower.led, "followers hear of it all the same"

    asyncio.run(run())
    assert "cannot be led" in caplog.text


def test_followers_hear_of_metadata_that_could_not_be_put_into_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    async def run() -> None:
        async with setup(tmp_path) as made:
            monkeypatch.setattr(LogManager, "open", fail)
            await made.create()
            assert made.follower.led == [False]

    asyncio.run(run())
    assert "could not be put into effect" in caplog.text


async def most_per_round(done: list[int]) -> int:
    """How many entries `done` got in the round of the loop in which it got most, until it is cancelled."""
    most, before = 0, len(done)
    try:
        while True:
            await asyncio.sleep(0)
            most, before = max(most, len(done) - before), len(done)
    except asyncio.CancelledError:
        return most


@pytest.mark.parametrize("what", ["opened", "configured", "deleted"])
def test_many_partitions_are_worked_on_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    count = 300
    done: list[int] = []

    def note(method: Any) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            done.append(1)
            return method(*arguments, **named)

        return noted

    async def run() -> None:
        async with setup(tmp_path) as made:
            if what != "opened":
                await made.create(partition_count=count)
            name = {"opened": "open", "configured": "configure", "deleted": "delete"}[what]
            monkeypatch.setattr(LogManager, name, note(getattr(LogManager, name)))
            LookCounter()
            watching = asyncio.create_task(most_per_round(done))
            if what == "opened":
                await made.create(partition_count=count)
            elif what == "configured":
                await made.publish(m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
            else:
                await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            watching.cancel()
            assert len(done) == count
            # Ten of them make a slice, or ten times sixteen where they are quick.
            assert await watching <= (200 if what == "configured" else 25)

    asyncio.run(run())


def test_topics_with_the_same_overrides_share_their_configuration(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            records: list[Any] = []
            for name in "abc":
                topic_id = name.encode() * 16
                records.append(m.TopicRecord(name=name, topic_id=topic_id))
                replica: dict[str, Any] = {"replicas": [NODE_ID], "isr": [NODE_ID], "leader": NODE_ID}
                records.append(m.PartitionRecord(topic_id=topic_id, partition_id=0, leader_epoch=0, **replica))
            records.append(m.ConfigRecord(resource_type=2, resource_name="c", name="retention.ms", value="5"))
            await made.publish(*records)
            configs = {key[0]: log.config for key, log in made.logs.logs.items()}
            assert configs["a"] is configs["b"]
            assert [configs[name].get_int("retention.ms") for name in "abc"] == [604_800_000, 604_800_000, 5]
            await made.publish(m.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="6"))
            configs = {key[0]: log.config for key, log in made.logs.logs.items()}
            assert [configs[name].get_int("retention.ms") for name in "abc"] == [6, 604_800_000, 5]

    asyncio.run(run())


def test_a_log_that_is_slow_to_close_holds_up_its_own_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "_PATIENCE_S", 0.02)
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            assert await made.append() == 0
            log = made.logs.logs["t", 0]
            reading = asyncio.create_task(log.run(lambda: slow.wait(120)))
            await asyncio.sleep(0.01)
            async with asyncio.timeout(30):
                await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
                other = bytes([9]) * 16
                replica: dict[str, Any] = {"replicas": [NODE_ID], "isr": [NODE_ID], "leader": NODE_ID}
                await made.publish(
                    m.TopicRecord(name="u", topic_id=other),
                    m.PartitionRecord(topic_id=other, partition_id=0, leader_epoch=0, **replica),
                )
            assert made.replicas.high_watermark("u", 0) == 0
            async with asyncio.timeout(30):
                await made.create()
            refused(lambda: made.replicas.state("t", 0), ErrorCode.KAFKA_STORAGE_ERROR)
            slow.set()
            assert await reading
            for _ in range(6000):
                if ("t", 0) in made.logs.logs:
                    break
                await asyncio.sleep(0.01)
            assert made.replicas.high_watermark("t", 0) == 0, "a new log"

    asyncio.run(run())


def test_a_stop_does_not_wait_for_logs_whose_turn_has_not_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            threads = [made.logs.executor.submit(leave.wait, 60) for _ in range(4)]
            creating = asyncio.create_task(made.create(partition_count=100))
            await asyncio.sleep(0.01)
            stopping = asyncio.create_task(made.replicas.stop())
            await asyncio.sleep(0.01)
            leave.set()
            await asyncio.gather(creating, stopping)
            assert all(thread.result() for thread in threads)
            assert made.logs.logs == {}

    clean_shutdown.write(tmp_path, 7)
    asyncio.run(run())
    assert caplog.records == []
    assert clean_shutdown.read(tmp_path) is not None, "nothing was touched"


def test_changes_are_applied_in_their_order(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            creating = asyncio.create_task(made.create(partition_count=5))
            await asyncio.sleep(0)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            await creating
            assert made.logs.logs == {}
            assert await made.replicas.placements(None) == {}

    asyncio.run(run())
    assert len(list(tmp_path.glob("t-*-delete"))) == 5


def test_metadata_is_in_effect_when_its_partitions_are(tmp_path: Path) -> None:
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            assert made.replicas.in_effect(2) == 2
            assert made.replicas.in_effect(9) == 9, "what is not published needs nothing done"
            threads = [made.logs.executor.submit(slow.wait, 60) for _ in range(4)]
            other = bytes([9]) * 16
            replica: dict[str, Any] = {"replicas": [NODE_ID], "isr": [NODE_ID], "leader": NODE_ID}
            creating = asyncio.create_task(
                made.publish(
                    m.TopicRecord(name="u", topic_id=other),
                    m.PartitionRecord(topic_id=other, partition_id=0, leader_epoch=0, **replica),
                )
            )
            await asyncio.sleep(0.01)
            electing = asyncio.create_task(made.elect(NODE_ID))
            await asyncio.sleep(0.01)
            assert made.replicas.in_effect(9) == 2
            slow.set()
            await asyncio.gather(creating, electing)
            assert all(thread.result() for thread in threads)
            assert made.replicas.high_watermark("u", 0) == 0
            assert made.replicas.in_effect(9) == 9

    asyncio.run(run())


def test_a_topic_is_opening_until_its_leader_serves_it(tmp_path: Path) -> None:
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            threads = [made.logs.executor.submit(slow.wait, 60) for _ in range(4)]
            creating = asyncio.create_task(made.create(partition_count=2))
            await asyncio.sleep(0)
            topic = made.image.topics.by_name["t"]
            elsewhere = topic.replace(partitions={0: topic.partitions[0].replace(leader=SOMEBODY_ELSE)})
            assert made.replicas.is_opening(topic)
            assert not made.replicas.is_opening(elsewhere)
            slow.set()
            await creating
            assert all(thread.result() for thread in threads)
            assert not made.replicas.is_opening(topic)

    asyncio.run(run())


def test_metadata_of_before_the_registration_does_not_count_as_in_effect(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, leads=False) as made:
            await made.create()
            creating = asyncio.create_task(made.publish())
            await asyncio.sleep(0)
            made.replicas.allow_leading()
            electing = asyncio.create_task(made.elect(NODE_ID))
            await asyncio.sleep(0)
            assert made.replicas.in_effect(3) == 0
            await asyncio.gather(creating, electing)
            assert made.replicas.in_effect(3) == 3

    asyncio.run(run())


def test_nothing_keeps_metadata_from_being_in_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t-0").write_text("a file where a directory should be")
    on_image = PartitionRoles.on_image

    def fail_once(roles: PartitionRoles, image: MetadataImage) -> None:
        monkeypatch.setattr(PartitionRoles, "on_image", on_image)
        raise RuntimeError("a defect")

    async def run() -> None:
        async with setup(tmp_path) as made:
            monkeypatch.setattr(PartitionRoles, "on_image", fail_once)
            first = asyncio.create_task(made.publish())
            await asyncio.sleep(0)
            await made.create()
            await first
            assert made.replicas.offline_count == 1
            assert made.replicas.in_effect(2) == 2

    asyncio.run(run())
    assert "could not be put into effect" in caplog.text
    assert "t-0 cannot be opened" in caplog.text


def test_delete_records(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            for _ in range(3):
                await made.append()
            assert await made.replicas.delete_records("t", 0, 2, 0) == 2
            assert await made.replicas.delete_records("t", 0, -1, 0) == 3
            with pytest.raises(KafkaError) as failure:
                await made.replicas.delete_records("t", 0, 4, 0)
            assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(run())


def test_look_ups_by_time_leave_threads_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may unpack a batch of a hundred megabytes."""
    began, may_end = threading.Semaphore(0), threading.Event()

    def look_up(_self: NativePartition, timestamp_ms: int, _isolation: int) -> PartitionPosition:
        began.release()
        assert may_end.wait(20)
        return PartitionPosition(timestamp_ms, timestamp_ms, 0)

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            assert await made.append() == 0
            monkeypatch.setattr(NativePartition, "list_offset", look_up)
            asked = [asyncio.create_task(made.replicas.list_offset("t", 0, each, 0)) for each in range(8)]
            for _ in range(2):
                assert await asyncio.to_thread(began.acquire, timeout=20)
            assert await made.replicas.read("t", 0, 0, 1 << 20), "a thread of the same pool has read it"
            assert not began.acquire(blocking=False), "a third look-up began"
            with pytest.raises(KafkaError):
                await made.replicas.list_offset("nowhere", 0, 0, 0)
            may_end.set()
            assert [found.offset for found in await asyncio.gather(*asked)] == list(range(8))

    asyncio.run(run())


def test_appends_under_way_fail_at_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            asyncio.get_running_loop().remove_reader(made.native.event_fd)
            waiting = asyncio.create_task(made.append())
            await asyncio.sleep(0)
            await made.replicas.stop()
            with pytest.raises(KafkaError):
                await waiting

    asyncio.run(run())
