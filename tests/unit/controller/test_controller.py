"""The driver: responses wait for durability, publishers see durable images in order, restarts find everything."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from started_controller import create as _create
from started_controller import start as _start
from started_controller import stop as _stop

from pybroker.controller import controller as controller_module
from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.metadata import log_files
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.errors import MetadataError, MetadataLogError
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


class _Recorder:
    """A publisher that remembers."""

    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.topics: list[str] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.images.append(image)
        self.topics += [topic.name for topic in delta.topics_changed.values() if topic is not None]


async def _next_id(ids: ProducerIdManager) -> int:
    """As clients get one: with a second request where the first one finds none."""
    producer_id = ids.take()
    if producer_id is None:
        await ids.settled()
        producer_id = ids.take()
    assert producer_id is not None
    return producer_id


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    async def first() -> MetadataImage:
        controller, dirs = await _start(tmp_path)
        assert controller.broker_epoch == 8
        assert controller.image.feature_levels == {
            "metadata.version": MAX_METADATA_VERSION,
            "eligible.leader.replicas.version": 1,
        }
        assert await _create(controller, "alpha") == ErrorCode.NONE
        ids = ProducerIdManager(controller.allocate_producer_ids, lambda: -1)
        assert [await _next_id(ids) for _ in range(3)] == [0, 1, 2]
        await _stop(controller, dirs)
        return controller.image

    async def second(before: MetadataImage) -> None:
        controller, dirs = await _start(tmp_path)
        image = controller.image
        alpha = image.topics.by_name["alpha"]
        assert alpha.id == before.topics.by_name["alpha"].id
        assert (alpha.partitions[0].leader, alpha.partitions[0].leader_epoch) == (1, 1)
        assert image.provenance.epoch == 2
        assert controller.broker_epoch > before.provenance.end_offset
        assert await _next_id(ProducerIdManager(controller.allocate_producer_ids, lambda: -1)) == 1000
        await _stop(controller, dirs)

    before = asyncio.run(first())
    assert before.cluster.brokers[1].fenced
    asyncio.run(second(before))


def test_an_empty_block_of_producer_ids_is_not_asked_for_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    asked_count = 0

    async def allocate(known_id: int) -> m.AllocateProducerIdsResponse:
        nonlocal asked_count
        asked_count += 1
        assert asked_count == 1
        return m.AllocateProducerIdsResponse(producer_id_start=7)

    async def run() -> None:
        ids = ProducerIdManager(allocate, lambda: -1)
        assert ids.take() is None
        await ids.settled()

    asyncio.run(run())
    assert ["an empty block" in each.getMessage() for each in caplog.records] == [True]


def test_nobody_waits_for_a_block_and_mostly_there_is_one(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        ids = ProducerIdManager(controller.allocate_producer_ids, lambda: -1)
        assert [ids.take() for _ in range(3)] == [None] * 3, "asked for, once"
        await ids.settled()
        assert controller.image.next_producer_id == 1_000
        assert [ids.take() for _ in range(899)] == list(range(899))
        await ids.settled()
        assert controller.image.next_producer_id == 1_000
        assert ids.take() == 899, "nine tenths are used"
        await ids.settled()
        assert controller.image.next_producer_id == 2_000
        assert [ids.take() for _ in range(600)] == list(range(900, 1_500))
        await ids.close()
        await _stop(controller, dirs)

    asyncio.run(run())


def test_a_log_that_fails_while_a_block_is_asked_for_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def allocate(_: int) -> m.AllocateProducerIdsResponse:
        raise MetadataLogError("no disk")

    async def run() -> None:
        ids = ProducerIdManager(allocate, lambda: -1)
        for _ in range(2):
            assert ids.take() is None
            await ids.settled()

    asyncio.run(run())
    assert [(each.levelname, "no disk" in each.getMessage()) for each in caplog.records] == [("WARNING", True)] * 2


def test_no_producer_gets_an_id_that_the_logs_know(tmp_path: Path) -> None:
    async def first() -> None:
        controller, dirs = await _start(tmp_path)
        known_id = 4_017
        ids = ProducerIdManager(controller.allocate_producer_ids, lambda: known_id)
        assert [await _next_id(ids) for _ in range(2)] == [5_000, 5_001]
        known_id = 5_001  # a log was opened again, and knows who produced to it meanwhile
        assert await _next_id(ids) == 5_002
        known_id = 5_500  # and another one came back that was away
        assert [await _next_id(ids) for _ in range(2)] == [6_000, 6_001]
        await _stop(controller, dirs)

    async def second() -> None:
        controller, dirs = await _start(tmp_path)
        # A controller that cannot be told is asked once for each log that knows more, and not for ever.
        others = ProducerIdManager(lambda _: controller.allocate_producer_ids(), lambda: 50_000)
        assert [await _next_id(others) for _ in range(2)] == [7_000, 7_001]
        assert controller.image.next_producer_id == 8_000
        await _stop(controller, dirs)

    async def third() -> None:
        controller, dirs = await _start(tmp_path)
        assert controller.image.next_producer_id == 8_000, "the metadata know as well by now"
        await _stop(controller, dirs)

    asyncio.run(first())
    asyncio.run(second())
    asyncio.run(third())


def test_concurrent_operations_see_each_other_and_are_published_in_order(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        recorder = _Recorder()
        controller.subscribe(recorder)
        names = [f"topic{number}" for number in range(20)]
        codes = await asyncio.gather(*[_create(controller, name) for name in [*names, "topic0"]])
        assert codes == [ErrorCode.NONE] * 20 + [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert recorder.topics == names
        offsets = [image.provenance.end_offset for image in recorder.images]
        assert offsets == sorted(offsets) and len(set(offsets)) == 21
        assert recorder.images[-1] is controller.image
        late = _Recorder()
        controller.subscribe(late)
        assert sorted(late.topics) == sorted(names)
        await _stop(controller, dirs)

    asyncio.run(run())


def test_a_response_waits_until_its_records_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        synced: list[bool] = []
        real = os.fdatasync

        def fdatasync(descriptor: int) -> None:
            assert "alpha" not in controller.image.topics.by_name
            real(descriptor)
            synced.append(True)

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        # The second answer changes nothing, but tells of the first: it must wait as well.
        first, second = (
            asyncio.ensure_future(_create(controller, "alpha")),
            asyncio.ensure_future(_create(controller, "alpha")),
        )
        assert (await second, bool(synced)) == (ErrorCode.TOPIC_ALREADY_EXISTS, True)
        assert await first == ErrorCode.NONE
        monkeypatch.undo()
        await _stop(controller, dirs)

    asyncio.run(run())


def test_a_failed_log_publishes_nothing_and_stops_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        failures: list[MetadataLogError] = []
        controller, dirs = await _start(tmp_path, on_failure=failures.append)

        def fail(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fdatasync", fail)
        results = await asyncio.gather(_create(controller, "a"), _create(controller, "b"), return_exceptions=True)
        assert [type(each) for each in results] == [MetadataLogError] * 2
        monkeypatch.undo()
        assert len(failures) == 1
        assert not controller.image.topics.by_name
        with pytest.raises(MetadataLogError, match="must be restarted"):
            await _create(controller, "c")
        await _stop(controller, dirs, clean=False)

    asyncio.run(run())


def test_a_caller_that_gives_up_harms_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        first, second = asyncio.ensure_future(_create(controller, "a")), asyncio.ensure_future(_create(controller, "b"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == ErrorCode.NONE
        assert set(controller.image.topics.by_name) == {"a", "b"}
        await _stop(controller, dirs)

    asyncio.run(run())


def test_snapshots_are_written_and_started_from(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path, "metadata.log.max.record.bytes.between.snapshots=3000")
        for number in range(40):
            await _create(controller, f"topic{number}")
        await _stop(controller, dirs)
        assert len(log_files.list_snapshots(dirs.metadata_log_directory)) > 1
        again, dirs = await _start(tmp_path)
        assert len(again.image.topics.by_name) == 40
        await _stop(again, dirs)

    asyncio.run(run())


def test_dynamic_broker_settings_apply_to_what_follows(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        edit = m.IncrementalAlterConfigsRequest.AlterableConfig(
            name="log.retention.ms", config_operation=0, value="4242"
        )
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name="", configs=[edit]
        )
        await controller.incremental_alter_configs(m.IncrementalAlterConfigsRequest(resources=[resource]))
        assert controller.config.get_int("log.retention.ms") == 4242
        await _stop(controller, dirs)

    asyncio.run(run())


def test_an_open_transaction_of_an_earlier_leader_is_aborted(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        await controller._log.append([_versioned(m.BeginTransactionRecord()), _versioned(_TOPIC)], 1)
        await _stop(controller, dirs, clean=False)
        for _ in range(2):
            again, dirs = await _start(tmp_path)
            assert "ghost" not in again.image.topics.by_name
            await _create(again, "real")
            assert "real" in again.image.topics.by_name
            await _stop(again, dirs)

    asyncio.run(run())


_TOPIC = m.TopicRecord(name="ghost", topic_id=b"g" * 16)


def _versioned(record: Any) -> Any:
    from pybroker.metadata.records import VersionedRecord

    return VersionedRecord(record, 0)


def test_a_log_of_another_voter_or_a_newer_cluster_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        await controller._log.append(
            [_versioned(m.FeatureLevelRecord(name="metadata.version", feature_level=MAX_METADATA_VERSION + 1))], 1
        )
        await _stop(controller, dirs, clean=False)
        with pytest.raises(MetadataError, match=rf"metadata\.version {MAX_METADATA_VERSION + 1}"):
            await _start(tmp_path)

    asyncio.run(run())


def test_an_operation_on_many_elements_keeps_nobody_waiting_and_sees_the_newest_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread works on it. What others change meanwhile is seen."""
    loop_thread = threading.get_ident()
    threads: list[int] = []
    may_begin = threading.Event()
    plain = controller_module.create_topics

    def operation(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        if threads[-1] != loop_thread:
            assert may_begin.wait(20)
        return plain(*arguments)

    monkeypatch.setattr(controller_module, "create_topics", operation)

    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        topic = m.CreateTopicsRequest.CreatableTopic
        names = ["beside", *(f"not a name {number}" for number in range(2_000))]
        large = m.CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names]
        )
        creating = asyncio.create_task(controller.create_topics(large, 7))
        while not threads:  # noqa: ASYNC110 - a thread's doing
            await asyncio.sleep(0.001)
        assert await _create(controller, "beside") == ErrorCode.NONE
        may_begin.set()
        rows = (await creating).topics
        assert rows[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert {row.error_code for row in rows[1:]} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert len(threads) == 3 and threads.count(loop_thread) == 1
        await _stop(controller, dirs)

    asyncio.run(run())
