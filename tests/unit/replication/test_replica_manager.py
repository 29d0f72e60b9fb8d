"""What the metadata makes of partitions, over the real data plane."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_double import Channel

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.native.broker import EVENT_APPENDED, EVENT_OFFLINE, BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.fetcher import FOLLOWER_CHECKPOINT, FetcherOptions
from pybroker.native.partition import NativePartition, PartitionPosition
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.record_batch import Record
from pybroker.replication import departures, log_repair
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.fetcher_manager import NOTHING_FETCHED, ReplicaFetcherManager
from pybroker.replication.isr_manager import IsrManager
from pybroker.replication.partition_roles import PartitionRoles, Replication
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage import clean_shutdown, offset_checkpoint
from pybroker.storage.applied_metadata import AppliedMetadata
from pybroker.storage.log_directory import LogDirectory
from pybroker.storage.log_manager import LogManager
from pybroker.storage.partition_log import PartitionLog
from pybroker.testing.look_counter import LookCounter
from pybroker.testing.waiting import until_async

NODE_ID = 1
TOPIC_ID = bytes(range(16))
NOBODY = -1
SOMEBODY_ELSE = 2


class ManualClock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class Follower:
    """Notes what it was told, and whether the partition was led by then."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self.replicas = replicas
        self.led: list[bool] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        try:
            self.replicas.high_watermark("t", 0)
        except KafkaError:
            self.led.append(False)
        else:
            self.led.append(True)


class Setup:
    """A replica manager, fed records by `publish`; APPENDED events reach it while `append` waits."""

    def __init__(self, log_dir: Path, *, is_alone: bool = True) -> None:
        log_dir.mkdir(exist_ok=True)
        self.config = BrokerConfig.load(None, [])
        replication = None if is_alone else self._replication()
        self.native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
        self.native.start()
        self.logs = LogManager(self.native, [LogDirectory(log_dir, bytes([7]) * 16)], self.config, ManualClock())
        self.replicas = ReplicaManager(NODE_ID, self.logs, lambda: self.config, replication)
        self.follower = Follower(self.replicas)
        self.replicas.add_follower(self.follower)
        self.image = empty_image("cluster")
        self.offline_events: list[Any] = []
        asyncio.get_running_loop().add_reader(self.native.event_fd, self.take_events)

    def _replication(self) -> Replication:
        def refuse(options: FetcherOptions) -> Any:
            raise AssertionError(f"nothing is followed, but broker {options.leader_id}")

        isr = IsrManager(NODE_ID, AlterPartitionManager(NODE_ID, Channel()), lambda: self.config)
        return Replication(isr, ReplicaFetcherManager(NODE_ID, "PLAINTEXT", lambda: self.config, refuse))

    def take_events(self) -> None:
        for event in self.native.take_events():
            if event[0] == EVENT_APPENDED:
                self.replicas.on_appended(event[2], event[3], event[1])
            elif event[0] == EVENT_OFFLINE:
                self.offline_events.append(event)

    async def publish(self, *records: Any) -> None:
        """Every record takes an offset."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record, 0)
        self.image = delta.apply(Provenance(self.image.provenance.end_offset + len(records)))
        self.replicas.publish(delta, self.image)
        await self.replicas.settled()

    async def create(
        self, leader: int = NODE_ID, partition_count: int = 1, replicas: tuple[int, ...] = (NODE_ID,)
    ) -> None:
        await self.publish(
            m.TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                m.PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partition_count)
            ),
        )

    async def elect(self, leader: int, **fields: Any) -> None:
        await self.publish(m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=leader, **fields))

    async def append(self, value: bytes = b"x") -> int:
        batch = record_batch.build(0, 0, [Record(None, value)], timestamp_ms=1)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def appended(base_offset: int, failure: KafkaError | None) -> None:
            if failure is None:
                done.set_result(base_offset)
            else:
                done.set_exception(failure)

        self.replicas.append("t", 0, batch, appended)
        async with asyncio.timeout(60):
            return await done


@asynccontextmanager
async def setup(log_dir: Path, *, leads: bool = True, is_alone: bool = True) -> AsyncIterator[Setup]:
    made = Setup(log_dir, is_alone=is_alone)
    await made.logs.load()
    if leads:
        made.replicas.allow_leading()
    try:
        yield made
    finally:
        await made.replicas.stop()
        await made.logs.close(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        asyncio.get_running_loop().remove_reader(made.native.event_fd)
        made.native.stop()
        made.native.close()


def refused(call: Any, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as failure:
        call()
    assert failure.value.code is code


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


def test_what_others_lack_is_not_committed(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            appending = asyncio.create_task(made.append())
            await made.elect(-2, isr=[NODE_ID])
            assert await appending == 0
            assert made.replicas.list_offset_now("t", 0, -1, 0).offset == 1
            await made.elect(-2, isr=[NODE_ID, SOMEBODY_ELSE])
            appending = asyncio.create_task(made.append())
            await until_async(lambda: made.replicas.log_end_offset("t", 0) == 2)
            await made.elect(NODE_ID)
            refused(lambda: made.replicas.list_offset_now("t", 0, -1, 0), ErrorCode.OFFSET_NOT_AVAILABLE)
            assert made.replicas.list_offset_now("t", 0, -2, 0).offset == 0
            assert (made.replicas.high_watermark("t", 0), made.replicas.log_end_offset("t", 0)) == (1, 2)
        with pytest.raises(KafkaError):
            await appending
        async with setup(tmp_path, is_alone=False) as again:
            await again.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            assert (again.replicas.high_watermark("t", 0), again.replicas.log_end_offset("t", 0)) == (1, 2)
            await again.elect(-2, isr=[NODE_ID])
            assert again.replicas.high_watermark("t", 0) == 2

    asyncio.run(run())


def test_appends_that_wait_for_others_fail_where_it_leads_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            appending = asyncio.create_task(made.append())
            await until_async(lambda: made.replicas.log_end_offset("t", 0) == 1)
            await made.replicas.resign("t", 0)
            with pytest.raises(KafkaError) as failure:
                await appending
            assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await made.replicas.resign("t", 0)
            await made.replicas.resign("u", 0)
            await made.elect(NODE_ID)
            assert made.replicas.log_end_offset("t", 0) == 1, "led again, as the metadata says"

    asyncio.run(run())


def test_replicas_come_and_go(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create()
            assert await made.append() == 0
            both = [NODE_ID, SOMEBODY_ELSE]
            await made.elect(-2, replicas=both, adding_replicas=[SOMEBODY_ELSE])
            assert await made.append() == 1, "it is not in sync yet"
            await made.elect(SOMEBODY_ELSE, isr=both, adding_replicas=[])
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await made.elect(-2, replicas=[SOMEBODY_ELSE], isr=[SOMEBODY_ELSE])
            assert not (tmp_path / "t-0").exists()
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refused(lambda: made.replicas.state("t", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    asyncio.run(run())


def test_records_are_deleted_when_all_who_are_alive_have_deleted_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            await made.elect(-2, isr=[NODE_ID])
            assert await made.append() == 0
            assert await made.replicas.delete_records("t", 0, -1, 0) == 1, "the other one is not alive"
            assert await made.append() == 1
            other = m.RegisterBrokerRecord(broker_id=SOMEBODY_ELSE, broker_epoch=1, fenced=False)
            await made.publish(other)
            with pytest.raises(KafkaError) as failure:
                await made.replicas.delete_records("t", 0, -1, 1)
            assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert made.replicas.log_start_offset("t", 0) == 2

    asyncio.run(run())


def names(log_dir: Path) -> list[str]:
    """Directories, without what makes those unique that were set aside."""
    return sorted(re.sub(r"\.[0-9a-f]{32}", "", each.name) for each in log_dir.iterdir() if each.is_dir())


def test_only_what_nobody_is_at_is_a_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "_PATIENCE_S", 0.02)
    (tmp_path / "t-1" / "00000000000000000000.log").mkdir(parents=True)
    (tmp_path / "t-2").mkdir()
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create(partition_count=2)
            refused(lambda: made.replicas.state("t", 1), ErrorCode.KAFKA_STORAGE_ERROR)
            log = made.logs.logs["t", 0]
            reading = asyncio.create_task(log.run(lambda: slow.wait(120)))
            await asyncio.sleep(0.01)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            assert ("t", 0) not in made.logs.logs, "but its directory is still there"
            await made.replicas.set_strays_aside()
            assert names(tmp_path) == ["t-0", "t-1", "t-2-stray"]
            slow.set()
            await reading
            await until_async(lambda: names(tmp_path) == ["t-0-delete", "t-1", "t-2-stray"])

    asyncio.run(run())


def test_nothing_is_a_stray_for_metadata_that_go_less_far_than_before(tmp_path: Path) -> None:
    """As of controllers that lost theirs; later ones of the same cluster may say so."""
    (tmp_path / "t-7").mkdir()

    async def run() -> None:
        async with setup(tmp_path) as made:
            (directory,) = made.logs.directories
            await made.publish()
            image = made.replicas._image
            assert image is not None
            end = AppliedMetadata(image.cluster_id, image.provenance.end_offset, image.provenance.epoch)
            for before in (
                end.replace(end_offset=end.end_offset + 1),
                end.replace(epoch=end.epoch + 1),
                end.replace(cluster_id="another"),
            ):
                directory.applied = before
                await made.replicas.set_strays_aside()
                assert names(tmp_path) == ["t-7"]
                assert directory.applied == before, "it is not forgotten how far they went"
            directory.applied = end
            await made.replicas.set_strays_aside()
            assert names(tmp_path) == ["t-7-stray"]

    asyncio.run(run())


def test_how_far_metadata_go_is_on_the_disk_before_directories_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            seen: list[tuple[str, int]] = []
            manager = type(made.logs)
            for name in ("open", "delete"):
                original = getattr(manager, name)

                def noting(logs: LogManager, *given: Any, _call: Any = original, _name: str = name, **more: Any) -> Any:
                    recorded = AppliedMetadata.read(tmp_path)
                    seen.append((_name, -1 if recorded is None else recorded.end_offset))
                    return _call(logs, *given, **more)

                monkeypatch.setattr(manager, name, noting)
            await made.create()
            opened_at = made.replicas._image.provenance.end_offset  # type: ignore[union-attr]
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            deleted_at = made.replicas._image.provenance.end_offset  # type: ignore[union-attr]
            assert seen == [("open", opened_at), ("delete", deleted_at)]

    asyncio.run(run())


def test_what_is_published_while_strays_are_set_aside_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "left").touch()
    slow = threading.Event()

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.publish()
            threads = [made.logs.executor.submit(slow.wait, 60) for _ in range(4)]
            setting_aside = asyncio.create_task(made.replicas.set_strays_aside())
            await asyncio.sleep(0.01)
            creating = asyncio.create_task(made.create())
            await asyncio.sleep(0.01)
            slow.set()
            await asyncio.gather(setting_aside, creating)
            assert all(thread.result() for thread in threads)
            assert names(tmp_path) == ["t-0", "t-0-stray"]
            assert not (tmp_path / "t-0" / "left").exists()
            assert await made.append() == 0

    asyncio.run(run())


def test_statistics(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            await made.publish(
                m.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3")
            )
            assert made.replicas.statistics().under_min_isr_count == 0, "there are two replicas, so two are enough"
            await made.elect(-2, isr=[NODE_ID])
            found = made.replicas.statistics()
            assert found.under_min_isr_count == 1
            assert (found.following_count, found.max_lag, found.isr.expansion_count) == (0, 0, 0)
            assert found.fetchers == NOTHING_FETCHED
            await made.elect(SOMEBODY_ELSE)
            assert made.replicas.statistics().under_min_isr_count == 0, "that is its leader's to tell"

    asyncio.run(run())


def checkpointed(tmp_path: Path) -> list[int]:
    """What the checkpoints on the disk say of t-0."""
    names = (offset_checkpoint.RECOVERY_POINT, offset_checkpoint.HIGH_WATERMARK)
    return [offset_checkpoint.read(tmp_path / name).get(("t", 0), 0) for name in names]


async def settled(made: Setup, tmp_path: Path) -> PartitionLog:
    """Whose three records are synced, as the checkpoints say."""
    log = made.logs.logs["t", 0]
    await log.run(log.native.sync)
    await log.run(log.native.upkeep, 0, 0)
    await made.logs.write_checkpoints()
    assert min(checkpointed(tmp_path)) > 1
    return log


def test_a_log_that_was_cut_is_led_when_no_checkpoint_says_more(tmp_path: Path) -> None:
    """As a follower is that is elected at once: a recovery would trust what comes behind the cut."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            for _ in range(3):
                await made.append()
            log = await settled(made, tmp_path)
            await made.elect(NOBODY)
            await log.run(log.native.truncate, 1)
            await made.elect(NODE_ID)
            assert checkpointed(tmp_path)[0] <= 1
            assert await made.append() == 1

    asyncio.run(run())


def test_a_topic_that_is_made_anew_is_led_when_no_checkpoint_speaks_of_the_old_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            for _ in range(3):
                await made.append()
            log = await settled(made, tmp_path)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            await made.create()
            assert made.logs.logs["t", 0] is not log
            assert checkpointed(tmp_path) == [0, 0]

    asyncio.run(run())


def test_a_follower_that_was_cut_follows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            followed: list[Any] = []

            async def follow_again(roles: PartitionRoles, replica: Any) -> None:
                followed.append(replica.log)

            monkeypatch.setattr(PartitionRoles, "follow_again", follow_again)
            log = made.logs.logs["t", 0]
            await made.replicas.on_follower(log.tag, FOLLOWER_CHECKPOINT, 5)
            assert followed == [log]

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


def test_deleting_a_topic_deletes_the_files_of_partitions_that_are_offline(tmp_path: Path) -> None:
    segment = tmp_path / "t-0" / f"{0:020d}.log"

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
        segment.unlink()
        segment.mkdir()
        async with setup(tmp_path) as made:
            await made.create()
            assert made.replicas.offline_count == 1
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            assert made.replicas.offline_count == 0
            assert not (tmp_path / "t-0").exists()

    asyncio.run(run())
