"""Which logs the cleaner has cleaned, with what, and what it does when that fails. The pass itself is a double."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.errors import NativeError
from pybroker.native.partition import (
    NEVER_CUT,
    CleanOptions,
    CleanProgress,
    CleanResult,
    PartitionState,
    Segment,
)
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files import gap_checkpoint, offset_checkpoint
from pybroker.storage.files.cleaner_checkpoint import CleanerCheckpoint
from pybroker.storage.logs.ends_keeper import EndsKeeper
from pybroker.storage.logs.log_cleaner import LogCleaner
from pybroker.storage.logs.log_failures import LogFailures
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.storage.logs.segment_purge import SegmentPurge
from tests.harness.waiting import until_async

CORRUPT_MESSAGE = 2
INVALID_RECORD = 87
COMPACT = {"cleanup.policy": "compact"}


class Clock:
    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class FakeLog:
    """Stands for a `NativePartition`: segments of ten offsets each, the last one active."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.passes: list[CleanOptions] = []
        self.failure: NativeError | None = None
        self.map_offsets = 10**9
        self.earliest_ms = -1
        self.cut_offset = NEVER_CUT
        self.timestamp_reads = 0
        self.cancelled = threading.Event()
        #: So many cancels come before the pass listens.
        self.unheard_cancels = 0
        self.began = threading.Event()
        self.during: Callable[[], None] = lambda: None

    def segments(self) -> list[Segment]:
        return [Segment(index * 10, index * 10 + 10, size, 1, 1) for index, size in enumerate(self.sizes)]

    @property
    def state(self) -> PartitionState:
        end = len(self.sizes) * 10
        return PartitionState(0, end, end, end, end, end, sum(self.sizes), 0, 0, 0, 0, cut_offset=self.cut_offset)

    def clean(self, options: CleanOptions) -> CleanResult:
        self.passes.append(options)
        self.began.set()
        self.during()
        if self.failure is not None:
            raise self.failure
        end_offset = min(options.upper_offset, options.first_dirty_offset + self.map_offsets)
        return CleanResult(end_offset, 5, 1, 1, 7, 2, 3, 1, 0, 4, 2, 1, 10**6, end_offset < options.upper_offset)

    def cancel_clean(self) -> None:
        self.unheard_cancels -= 1
        if self.unheard_cancels < 0:
            self.cancelled.set()

    def wait_for_cancel(self) -> None:
        assert self.cancelled.wait(20)
        self.cancelled.clear()
        self.failure = NativeError(-errno.ECANCELED)

    @property
    def clean_progress(self) -> CleanProgress:
        return CleanProgress(2, 3, 4, 5)

    def first_timestamp(self, _from_offset: int, _upper_offset: int) -> int:
        self.timestamp_reads += 1
        return self.earliest_ms

    def resign(self, _error: int) -> None:
        """Nobody is served."""

    def close(self, *, clean: bool) -> None:
        """Nothing is open."""


class Setup:
    """A cleaner over doubles, in the shape of a log manager."""

    def __init__(self, root: Path, *settings: str) -> None:
        self.clock = Clock()
        self.config = BrokerConfig.load(None, list(settings))
        self.directory = LogDirectory(root, bytes(16))
        self.executor = ThreadPoolExecutor(2)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.failures = LogFailures()
        self.purge = SegmentPurge(self.executor, self.clock.wall_ms, self.failures.report)
        self.ends = EndsKeeper(self.executor, asyncio.Lock(), self.failures.report_directory)
        self.rates: list[int] = []
        self.retained: list[set[str]] = []
        self.cleaner = LogCleaner(self, self.rates.append, self.retain)  # type: ignore[arg-type]  # a double

    def add(self, topic: str, native: FakeLog, overrides: dict[str, str] = COMPACT) -> PartitionLog:
        config = TopicConfig.resolve(overrides, self.config)
        key = (topic, 0)
        path = self.directory.path / f"{topic}-0"
        path.mkdir(exist_ok=True)
        log = PartitionLog(key, bytes(16), 1, self.directory, path, config, native, self.executor)  # type: ignore[arg-type]  # a double
        self.logs[key] = log
        return log

    def states(self, logs: Iterable[PartitionLog]) -> dict[tuple[str, int], PartitionState]:
        return {log.key: log.native.state for log in logs}

    async def retain(self, logs: list[PartitionLog]) -> None:
        self.retained.append({log.key[0] for log in logs})

    def written(self) -> dict[str, int]:
        found = offset_checkpoint.read(self.directory.path / offset_checkpoint.CLEANER_OFFSET)
        return {topic: offset for (topic, _), offset in found.items()}


def test_the_filthiest_log_goes_first(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        order: list[str] = []
        half, filthy, fresh, deleted = FakeLog(50, 60, 9), FakeLog(10, 90, 9), FakeLog(80, 20, 9), FakeLog(9, 9, 9)
        for name, native in (("half", half), ("filthy", filthy), ("fresh", fresh)):
            native.during = lambda name=name: order.append(name)
            made.directory.cleaner_checkpoint.put((name, 0), 10)
            made.add(name, native)
        made.add("deleted", deleted, {})
        assert await made.cleaner.run_round()
        assert order == ["filthy", "half"], "the third is too clean"
        assert (filthy.passes[0].first_dirty_offset, filthy.passes[0].upper_offset) == (10, 20)
        assert made.written() == {"half": 20, "filthy": 20, "fresh": 10}
        assert deleted.passes == []
        assert made.retained == [{"half", "filthy", "fresh"}]
        assert not await made.cleaner.run_round()
        assert len(filthy.passes) == 1
        ratios = {each.partition: each.dirty_ratio for each in made.cleaner.statistics().dirtiest}
        assert ratios == {"half-0": 0, "filthy-0": 0, "fresh-0": 0.2}

    asyncio.run(run())


def test_what_does_not_fit_the_map_is_cleaned_in_the_next_round(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10, 10, 10)
        native.map_offsets = 15
        made.add("t", native, COMPACT | {"min.cleanable.dirty.ratio": "0"})
        assert await made.cleaner.run_round()
        assert made.written() == {"t": 15}
        native.map_offsets = 0
        assert not await made.cleaner.run_round(), "no progress: it must not go on at once"
        assert made.written() == {"t": 15}
        statistics = made.cleaner.statistics()
        assert (statistics.cleaned_count, statistics.read_bytes, statistics.written_bytes) == (2, 24, 6)

    asyncio.run(run())


def test_settings_reach_the_pass(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(
            tmp_path,
            "log.cleaner.threads=2",
            "log.cleaner.dedupe.buffer.size=20000000",
            "log.cleaner.io.buffer.size=300000",
            "log.cleaner.io.buffer.load.factor=0.7",
            "log.cleaner.io.max.bytes.per.second=1000.5",
            "log.cleaner.delete.retention.ms=77",
        )
        plain, other = FakeLog(10, 10), FakeLog(10, 10)
        made.add("plain", plain)
        made.add("other", other, COMPACT | {"delete.retention.ms": "5", "compression.type": "zstd"})
        await made.cleaner.run_round()
        assert plain.passes == [CleanOptions(0, 10, 1_000_000, 77, 10_000_000, 150_000, 70, -1, -(2**31))]
        assert (other.passes[0].delete_retention_ms, other.passes[0].compression) == (5, 4)
        assert made.rates == [1000]
        made.config = BrokerConfig.load(None, [])
        await made.cleaner.run_round()
        assert made.rates == [1000, 0]

    asyncio.run(run())


@pytest.mark.parametrize("thread_count", [1, 2])
def test_as_many_passes_at_once_as_there_are_threads(tmp_path: Path, thread_count: int) -> None:
    async def run() -> None:
        made = Setup(tmp_path, f"log.cleaner.threads={thread_count}")
        barrier = threading.Barrier(thread_count)
        running: list[int] = []
        for name in ("a", "b"):
            native = FakeLog(10, 10)

            def during() -> None:
                barrier.wait(20)
                running.append(len(made.cleaner.statistics().running))

            native.during = during
            made.add(name, native)
        assert await made.cleaner.run_round()
        assert max(running) == thread_count

    asyncio.run(run())


def test_without_threads_nothing_is_cleaned(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path, "log.cleaner.threads=0")
        native = FakeLog(10, 10)
        made.add("t", native)
        assert not await made.cleaner.run_round()
        assert native.passes == []

    asyncio.run(run())


def test_a_log_that_cannot_be_cleaned_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        broken, good = FakeLog(10, 10), FakeLog(10, 10)
        broken.failure = NativeError(CORRUPT_MESSAGE, "00.log: a damaged batch at position 61")
        log = made.add("broken", broken)
        made.add("good", good)
        assert await made.cleaner.run_round()
        assert not await made.cleaner.run_round()
        assert len(broken.passes) == 1
        errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert len(errors) == 1 and "broken-0" in errors[0] and "position 61" in errors[0]
        assert made.cleaner.statistics().uncleanable == {"broken-0": broken.failure.text}
        assert made.retained[-1] == {"broken", "good"}, "its old segments go all the same"
        assert made.written() == {"good": 10}
        await log.close(error=3, clean=False)
        assert made.cleaner.statistics().uncleanable == {}

    asyncio.run(run())


def test_a_log_whose_records_may_be_longer_by_now_is_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10)
        native.failure = NativeError(INVALID_RECORD, "a record has 2000 bytes after decompression")
        log = made.add("t", native, COMPACT | _limit(1000))
        assert not await made.cleaner.run_round()
        assert not await made.cleaner.run_round()
        assert len(native.passes) == 1
        native.failure = None
        log.configure(TopicConfig.resolve(COMPACT | {"retention.bytes": "1", **_limit(1000)}, made.config))
        assert not await made.cleaner.run_round(), "another setting has changed"
        log.configure(TopicConfig.resolve(COMPACT | _limit(3000), made.config))
        assert await made.cleaner.run_round()
        assert made.cleaner.statistics().uncleanable == {}

    asyncio.run(run())


def _limit(max_record_bytes: int) -> dict[str, str]:
    return {"max.decompressed.message.bytes": str(max_record_bytes)}


def test_a_failing_disk_is_reported(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10)
        native.failure = NativeError(-errno.EIO)
        made.add("t", native)
        assert not await made.cleaner.run_round()
        assert "cleaning failed for t-0" in made.failures.offline[tmp_path]
        assert not await made.cleaner.run_round()
        assert len(native.passes) == 1
        assert made.cleaner.statistics().uncleanable == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "is_told"), [(errno.EAGAIN, False), (errno.EBUSY, False), (errno.ENOSPC, True), (errno.ENOMEM, True)]
)
def test_what_may_pass_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, is_told: bool
) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10)
        native.failure = NativeError(-code)
        made.add("t", native)
        assert not await made.cleaner.run_round()
        assert bool([each for each in caplog.records if each.levelno == logging.ERROR]) is is_told
        native.failure = None
        assert await made.cleaner.run_round()
        assert made.written() == {"t": 10}

    asyncio.run(run())


def test_max_compaction_lag(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(90, 10, 10)
        native.earliest_ms = Clock.now_ms - 1000
        made.add("t", native, COMPACT | {"max.compaction.lag.ms": "1000"})
        made.directory.cleaner_checkpoint.put(("t", 0), 10)
        assert not await made.cleaner.run_round()
        made.clock.now_ms += 1
        assert await made.cleaner.run_round()
        assert native.timestamp_reads == 1, "it is read once"
        assert not await made.cleaner.run_round()
        assert native.timestamp_reads == 1, "nothing is dirty"

    asyncio.run(run())


def test_closing_a_log_ends_its_pass(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10)
        native.during = native.wait_for_cancel
        native.unheard_cancels = 2
        log = made.add("t", native)
        cleaning = asyncio.create_task(made.cleaner.run_round())
        await until_async(native.began.is_set)
        await log.close(error=3, clean=True)
        assert not await cleaning
        assert made.cleaner.statistics().running == []
        assert made.cleaner.statistics().uncleanable == {}
        assert not (tmp_path / offset_checkpoint.CLEANER_OFFSET).exists()

    asyncio.run(run())


def test_it_works_by_itself_and_stops_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path, "log.cleaner.backoff.ms=1")
        first, second = FakeLog(10, 10), FakeLog(10, 10)
        made.add("first", first)
        made.cleaner.start()
        await until_async(lambda: first.passes)
        second.during = second.wait_for_cancel
        made.add("second", second)
        made.clock.now_ms += 1000
        await until_async(second.began.is_set)
        (running,) = made.cleaner.statistics().running
        assert (running.partition, running.plan.upper_offset, running.progress.done_bytes) == ("second-0", 10, 3)
        await made.cleaner.stop()
        assert made.cleaner.statistics().running == []
        assert made.written() == {"first": 10}

    asyncio.run(run())


def test_a_failure_in_the_moment_of_the_stop_does_not_outlast_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        begun = asyncio.Event()

        async def round_that_fails() -> bool:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                raise OSError(errno.EIO, "while it is cancelled")

        monkeypatch.setattr(made.cleaner, "run_round", round_that_fails)
        made.cleaner.start()
        await begun.wait()
        await asyncio.wait_for(made.cleaner.stop(), 60)

    asyncio.run(run())
    assert "while it is cancelled" in caplog.text


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path, "log.cleaner.enable=false", "log.cleaner.backoff.ms=0")
        native = FakeLog(10, 10)
        made.add("t", native)
        made.cleaner.start()
        await asyncio.sleep(0.02)
        await made.cleaner.stop()
        assert native.passes == []

    asyncio.run(run())


def test_a_pass_does_not_call_clean_what_came_behind_a_cut(tmp_path: Path) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(10, 10, 10)
        log = made.add("t", native, COMPACT | {"min.cleanable.dirty.ratio": "0"})

        def cut() -> None:
            """When the data plane is done with the pass, and the checkpoint is lowered before the pass has put it."""
            native.cut_offset = 15
            made.directory.cleaner_checkpoint.lower({log.key: native.cut_offset})

        native.during = cut
        assert await made.cleaner.run_round()
        assert made.written() == {"t": 15}
        native.during = lambda: None
        assert await made.cleaner.run_round()
        assert native.passes[1].first_dirty_offset == 15

    asyncio.run(run())


def test_a_checkpoint_is_lowered_to_where_a_log_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / offset_checkpoint.CLEANER_OFFSET
    checkpoint = CleanerCheckpoint(tmp_path)
    checkpoint.lower({("t", 0): 5})
    assert not path.exists()
    for name, offset in (("cut", 10), ("above", 3), ("not", 7)):
        checkpoint.put((name, 0), offset)
    cut_offsets = {("cut", 0): 5, ("above", 0): 5, ("not", 0): NEVER_CUT, ("never cleaned", 0): 5}

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(offset_checkpoint, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.lower(cut_offsets)
    checkpoint.lower({})
    assert offset_checkpoint.read(path) == {("cut", 0): 5, ("above", 0): 3, ("not", 0): 7}


def test_checkpoints_are_of_the_partitions_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "there-0").mkdir()
    path = tmp_path / offset_checkpoint.CLEANER_OFFSET
    offset_checkpoint.write(path, {("there", 0): 7, ("gone", 0): 8})
    directory = LogDirectory(tmp_path, bytes(16))
    directory.load()
    assert [directory.cleaner_checkpoint.get((name, 0)) for name in ("there", "gone")] == [7, None]
    directory.set_aside(("there", 0), tmp_path / "there-0", "-delete")
    assert directory.cleaner_checkpoint.get(("there", 0)) is None, (
        "a new topic of that name is dirty from its beginning"
    )
    assert offset_checkpoint.read(path) == {}


def test_a_damaged_checkpoint_is_no_obstacle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / offset_checkpoint.CLEANER_OFFSET).write_text("0\nnonsense\n")
    directory = LogDirectory(tmp_path, bytes(16))
    directory.load()
    assert directory.cleaner_checkpoint.get(("t", 0)) is None
    assert "cleaner-offset-checkpoint" in caplog.text


def test_a_full_disk_does_not_lose_what_was_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = LogDirectory(tmp_path, bytes(16))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(offset_checkpoint, "write", fail)
        directory.cleaner_checkpoint.put(("t", 0), 5)
    assert "No space left" in caplog.text
    assert directory.cleaner_checkpoint.get(("t", 0)) == 5
    directory.cleaner_checkpoint.put(("u", 0), 6)
    assert offset_checkpoint.read(tmp_path / offset_checkpoint.CLEANER_OFFSET) == {("t", 0): 5, ("u", 0): 6}


def test_gaps_are_accounted_for_before_a_pass_makes_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        made = Setup(tmp_path)
        native = FakeLog(100, 100, 100)
        log = made.add("t", native)
        found: list[dict[tuple[str, int], int]] = []

        def look() -> None:
            found.append(offset_checkpoint.read(tmp_path / gap_checkpoint.FILE_NAME))

        native.during = look

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(offset_checkpoint, "write", fail)
            assert not await made.cleaner.run_round()
        assert native.passes == []
        assert await made.cleaner.run_round()
        assert found[0] == {log.key: native.passes[0].upper_offset}

    asyncio.run(run())
