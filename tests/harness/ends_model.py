"""A model of logs that are cut, cleaned, moved, deleted and made anew, with kills and power cuts at any step.

Recorded ends and notes are written by the broker's own code. Segments, in which each record has `RECORD_BYTES`, are
written by the model, in the data plane's order and durable where that is. A kill ends everything at one of the steps in
between; a power cut also takes what was not durable. The start after it compares, and must find no loss. Where the
model has damaged files itself, the start must find that.

`play` one seed; `Broken` says what was wrong. For a directory on tmpfs, where syncs cost nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.partition import NEVER_CUT, PartitionState, Segment
from pybroker.storage.dirs.log_directory import DELETED_SUFFIX, LogDirectory
from pybroker.storage.files import atomic, log_ends, partition_metadata
from pybroker.storage.logs.ends_keeper import EndsKeeper
from pybroker.storage.logs.log_loss import Loss, find_missing, find_short
from pybroker.storage.logs.partition_log import PartitionLog

P = ParamSpec("P")
T = TypeVar("T")

RECORD_BYTES = 10
KEY = ("t", 0)
_LIVES = 3
_STEPS_PER_LIFE = 12
#: Every so many seeds have more and shorter lives with little but cuts, and mostly a kill right behind a cut: nothing
#: is recorded between several of them.
_CUTTING_SEEDS = 4
#: How often an older broker has the dirs after a kill.
_OLDER_LIVES = 0.2
_CUTTING_LIVES = 10
_STEPS_PER_CUTTING_LIFE = 8
_SHORT_CUT = 8
_KILLED_BEHIND_CUT = 0.8


class Killed(BaseException):
    """The process ends here."""


class Broken(AssertionError):
    """A loss that is none was found, or one that is was not."""


class _Inline(Executor):
    """Runs at once what is submitted."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except (Exception, Killed) as error:  # noqa: BLE001  # whoever waits is told
            future.set_exception(error)
        return future


class _Machine:
    """Counts steps, and ends the process at one of them. `durable`: what a power cut leaves of the log."""

    def __init__(self) -> None:
        self.left = -1
        self.boot = 1
        self.durable = 0

    def step(self) -> None:
        """Something was done, or is about to be."""
        if self.left == 0:
            raise Killed
        self.left -= 1


class ModelLog:
    """A log as the data plane keeps it: files of whole records, and what is known of them in memory."""

    def __init__(self, machine: _Machine, path: Path, start: int) -> None:
        """`start` is that of the checkpoint."""
        self.path = path
        self._machine = machine
        for each in path.glob("*.deleted"):
            each.unlink()
        self.bases = sorted(int(each.stem) for each in path.glob("*.log")) or [0]
        if not list(path.glob("*.log")):
            self._file(0).touch()
        self.start = max(self.bases[0], start)
        self.end = self.bases[-1] + self._count(self.bases[-1])
        if self.start > self.end:
            for base in self.bases:
                self._file(base).unlink()
            self._file(self.start).touch()
            self.bases, self.end = [self.start], self.start
        self.generation, self.least_cut = self._read_note()
        #: As recovery knows it; the disk may have more.
        self.durable = self.bases[0]

    def _file(self, base: int) -> Path:
        return self.path / f"{base:020}.log"

    def _count(self, base: int) -> int:
        return self._file(base).stat().st_size // RECORD_BYTES

    @property
    def state(self) -> PartitionState:
        """As the data plane tells it."""
        end, durable = self.end, max(self.durable, self.start)  # as recovery has it
        return PartitionState(
            self.start, end, end, end, durable, durable, 0, 0, 0, 0, 0, cut_generation=self.generation
        )

    def segments(self) -> list[Segment]:
        """Oldest first."""
        ends = [*self.bases[1:], self.end]
        return [
            Segment(base, end, self._count(base) * RECORD_BYTES, 0, 0)
            for base, end in zip(self.bases, ends, strict=True)
        ]

    def append(self, count: int) -> None:
        """Write to the active segment."""
        with open(self._file(self.bases[-1]), "ab") as file:
            file.write(bytes(count * RECORD_BYTES))
        self.end += count

    def sync(self) -> None:
        """All of it is durable."""
        self.durable = self._machine.durable = self.end

    def roll(self) -> None:
        """A new segment."""
        if self.end > self.bases[-1]:
            self._file(self.end).touch()
            self.bases.append(self.end)

    def truncate(self, offset: int) -> None:
        """Cut, as csrc/log/change/cut.c does."""
        if offset >= self.end:
            return
        self._note_cut(offset)
        while len(self.bases) > 1 and self.bases[-1] > offset:
            self._machine.step()
            self._file(self.bases.pop()).unlink()
        base = self.bases[-1]
        self._machine.step()
        if base > offset:
            self._begin_anew(offset)
        else:
            os.truncate(self._file(base), (offset - base) * RECORD_BYTES)
        self._machine.step()
        self._take_back(offset)

    def restart(self, offset: int) -> None:
        """All goes; it begins at `offset`."""
        self._note_cut(-1)
        while len(self.bases) > 1:
            self._machine.step()
            self._file(self.bases.pop()).unlink()
        self._machine.step()
        self._begin_anew(offset)
        self._machine.step()
        self._take_back(offset)
        self.durable = self._machine.durable = offset

    def _begin_anew(self, offset: int) -> None:
        self._file(self.bases[0]).unlink()
        self._machine.step()
        self._file(offset).touch()
        self.bases = [offset]
        self.start = offset

    def _read_note(self) -> tuple[int, int]:
        """The generation of the last cut, and the least end of all."""
        note = self.path / log_ends.CUT_NOTE
        if not note.exists():
            return 0, NEVER_CUT
        _, generation, least = map(int, note.read_text().split())
        return generation, least

    def _note_cut(self, offset: int) -> None:
        self.least_cut = min(self.least_cut, offset)
        self._noted = self.generation + 1
        note = self.path / log_ends.CUT_NOTE
        self._machine.step()
        atomic.write_durably(note, f"0 {self._noted} {self.least_cut}\n".encode())

    def _take_back(self, offset: int) -> None:
        self.end = offset
        self.start = min(self.start, offset)
        self.durable = min(self.durable, offset)
        self._machine.durable = min(self._machine.durable, offset)
        self.generation = self._noted

    def delete_before(self, offset: int) -> None:
        """Retention, or DeleteRecords."""
        self.start = max(self.start, offset)
        while len(self.bases) > 1 and self.bases[1] <= self.start:
            self._machine.step()
            self._file(self.bases.pop(0)).unlink()

    def delete_as_older(self, offset: int) -> None:
        """Retention of a broker that knows no recorded ends, and is killed before it writes a checkpoint. Files wait
        for file.delete.delay.ms under other names."""
        self.start = max(self.start, offset)
        while len(self.bases) > 1 and self.bases[1] <= self.start:
            file = self._file(self.bases.pop(0))
            file.rename(file.with_name(f"{file.name}.deleted"))

    def clean(self, rng: random.Random) -> None:
        """A pass of the cleaner: sealed segments are merged, and lose records. It cleans only what is durable."""
        if len(self.bases) < 3:
            return
        self.sync()
        first = rng.randrange(len(self.bases) - 2)
        self._machine.step()
        os.truncate(self._file(self.bases[first]), rng.randrange(self._count(self.bases[first]) + 1) * RECORD_BYTES)
        self._machine.step()
        self._file(self.bases.pop(first + 1)).unlink()

    def lose_power(self, rng: random.Random) -> None:
        """Something of what is not durable goes from the files."""
        for base in reversed(self.bases):
            count = self._count(base)
            durable_count = max(0, min(count, self._machine.durable - base))
            left = rng.randint(durable_count, count)
            if base > self._machine.durable and rng.random() < 0.5 and base != self.bases[0]:
                self._file(base).unlink()
            else:
                os.truncate(self._file(base), left * RECORD_BYTES)
            if left < count:
                # What follows is no part of the log; recovery takes it off.
                for later in [each for each in self.bases if each > base]:
                    self._file(later).unlink(missing_ok=True)


class Life:
    """One run of the broker over two log dirs, from its start on. `check` says what it finds of the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.directories = [LogDirectory(path, bytes([n + 1]) * 16) for n, path in enumerate(world.paths)]
        self.log: PartitionLog | None = None
        self.found: list[Loss] = []

    async def start(self) -> None:
        """Load the dirs, compare, open the log."""
        for directory in self.directories:
            directory.load()
        self.keeper = EndsKeeper(self.world.executor, asyncio.Lock(), self._fail)
        places = [each for each in self.directories if KEY in each.partitions]
        assert len(places) <= 1, "a move never leaves two"
        for directory in self.directories:
            if places and directory is not places[0]:
                directory.ends.forget(KEY)
        topic_id = self.world.topic_id
        if places and partition_metadata.read(places[0].partitions[KEY]) != topic_id:
            places[0].set_aside(KEY, places[0].partitions[KEY], "-stray")
            places[0].forget(KEY)
            places = []
        if not places:
            is_deleted = self._is_deleted(topic_id)
            gone = self.keeper.find_gone(self.directories, KEY, topic_id, is_deleted=is_deleted)
            self.found += [] if gone is None else [gone[1]]
            if gone is None:
                await self._forget_gone()
        self._open(places[0] if places else self.directories[0])

    def _fail(self, directory: LogDirectory, what: str, error: OSError) -> None:
        raise Broken(f"{directory.path}: {what}: {error}")

    def _is_deleted(self, topic_id: bytes) -> bool:
        deleted = [path for directory in self.directories for path in directory.deleted]
        return any(partition_metadata.read(each) == topic_id for each in deleted)

    def _open(self, directory: LogDirectory) -> None:
        path = directory.path / f"{KEY[0]}-{KEY[1]}"
        recorded = self.keeper.recorded(directory, KEY, self.world.topic_id)
        if path.exists() and recorded is not None:
            recorded = self.keeper.without_deleted(directory, KEY, path, recorded)
            loss = find_missing(KEY, path, recorded)
            self.found += [] if loss is None else [loss]
        elif not path.exists():
            path.mkdir()
            partition_metadata.write(path, self.world.topic_id)
            recorded, self.world.machine.durable = None, 0
        native: Any = ModelLog(self.world.machine, path, directory.log_start_offset(KEY))
        self.world.native = native
        if recorded is not None and not self.found:
            loss = find_short(KEY, path, recorded, native.start, native.end)
            self.found += [] if loss is None else [loss]
        self.log = PartitionLog(
            KEY, self.world.topic_id, 1, directory, path, self.world.config, native, self.world.executor
        )
        directory.partitions[KEY] = path
        self.keeper.begin(self.log, recorded, native.state)

    # ---- what the broker does --------------------------------------------------------------------------------------

    async def checkpoint(self, *, is_closed: bool = False) -> None:
        """As `LogManager` writes them."""
        log = self.log
        for directory in self.directories:
            states, ends = {}, {}
            if log is not None and log.directory is directory:
                state = log.native.state
                states[KEY] = state._replace(recovery_point=state.log_end_offset) if is_closed else state
                ends[KEY] = self.keeper.of_closed(log, state) if is_closed else self.keeper.of(log, state)
            directory.write_checkpoints(states, ends)

    async def remove_deleted(self) -> None:
        """As it goes some time after the start."""
        for path in [path for directory in self.directories for path in directory.deleted]:
            await self._forget_gone()
            shutil.rmtree(path)

    async def note_written(self) -> None:
        """As `LogMaintenance` does."""
        await self._note_written()

    async def _note_written(self) -> None:
        logs = {} if self.log is None else {KEY: self.log}
        await self.keeper.save_written(self.directories, {log: log.native.state for log in logs.values()})

    async def note_segments(self) -> None:
        log = self.log
        assert log is not None
        self.keeper.note_segments(log, log.native.state, log.native.segments())

    async def delete_records(self) -> None:
        log, native = self.log, self.world.native
        assert log is not None
        offset = self.world.rng.randint(native.start, native.end)
        await self.keeper.before_deletion([(log, offset)])
        native.delete_before(offset)

    async def clean(self) -> None:
        log = self.log
        assert log is not None
        await self.keeper.before_cleaning(log)
        self.world.native.clean(self.world.rng)

    async def truncate(self) -> None:
        native, rng = self.world.native, self.world.rng
        least = max(native.start, native.end - _SHORT_CUT) if self.world.is_cutting else native.start
        native.truncate(rng.randint(least, native.end))
        if self.world.is_cutting and rng.random() < _KILLED_BEHIND_CUT:
            raise Killed
        if self.log is not None and self.log.directory.tells_more(KEY, native.state):
            await self.checkpoint()

    async def restart(self) -> None:
        native = self.world.native
        native.restart(native.end + self.world.rng.randint(0, 20))

    async def make_anew(self) -> None:
        """The topic is deleted and made again, or the replica leaves this broker and comes back."""
        log, machine = self.log, self.world.machine
        assert log is not None
        if self.world.rng.random() < 0.5:
            self.world.topic_id = self.world.rng.randbytes(16)
        self.log = None
        renamed = log.directory.set_aside(KEY, log.path, DELETED_SUFFIX)
        log.directory.forget(KEY)
        machine.step()
        comes_first = self.world.rng.random() < 0.5
        if comes_first:
            await self._come_back()
        await self._forget_gone()
        shutil.rmtree(renamed)
        machine.step()
        if not comes_first:
            await self._come_back()

    async def _come_back(self) -> None:
        await self._forget_gone()
        self.world.machine.step()
        self._open(self.world.rng.choice(self.directories))
        self.world.machine.step()

    async def _forget_gone(self) -> None:
        """As `LogManager` does."""
        if any(each.ends.speaks_of_gone(KEY) for each in self.directories):
            await self.checkpoint()
            await self._note_written()

    async def move(self) -> None:
        """To the other log dir."""
        log, machine = self.log, self.world.machine
        assert log is not None
        source = log.directory
        target = next(each for each in self.directories if each is not source)
        self.world.native.sync()
        future = target.path / f"{log}.{'0' * 32}-future"
        shutil.rmtree(future, ignore_errors=True)
        shutil.copytree(log.path, future)
        original = source.path / f"{log}.{'0' * 32}{DELETED_SUFFIX}"
        shutil.rmtree(original, ignore_errors=True)
        machine.step()
        os.rename(log.path, original)
        final = target.path / str(log)
        # A kill in between is settled by the next start, which the model does at once.
        os.rename(future, final)
        source.forget(KEY)
        log.directory, log.path, self.world.native.path = target, final, final
        target.partitions[KEY] = final
        machine.step()
        await self.checkpoint()
        machine.step()
        shutil.rmtree(original)


class World:
    """What outlives a broker: two log dirs, and what the cluster knows of the topic."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.paths = (root / "a", root / "b")
        for path in self.paths:
            path.mkdir(parents=True)
        self.machine = _Machine()
        self.executor = _Inline()
        self.config = TopicConfig.resolve({}, BrokerConfig.load(None, []))
        self.topic_id = self.rng.randbytes(16)
        self.native: Any = None
        self.is_clean = False
        self.is_cutting = seed % _CUTTING_SEEDS == 0


def play(root: Path, seed: int) -> int:
    """Some lives of a broker; how many damages were planted, and found. `Broken` for a false alarm or a damage that was
    not found."""
    world, planted = World(root, seed), 0
    loop = asyncio.new_event_loop()
    try:
        with _patched(world):
            for number in range(_CUTTING_LIVES if world.is_cutting else _LIVES):
                life = Life(world)
                loop.run_until_complete(life.start())
                if life.found:
                    raise Broken(f"seed {seed}, life {number}: {life.found[0]}, and nothing was lost")
                _live(loop, world, life)
                if not world.is_clean and world.rng.random() < _OLDER_LIVES:
                    _live_as_older(world)
            planted = _plant(loop, world, seed)
    finally:
        loop.close()
    return planted


@contextmanager
def _patched(world: World) -> Iterator[None]:
    """Each durable write of the broker is a step before and after it, and the boot is the model's."""
    write = atomic.write_durably

    def write_durably(path: Path, data: bytes, mode: int | None = None) -> None:
        world.machine.step()
        write(path, data, mode)
        world.machine.step()

    def boot_id() -> bytes:
        return world.machine.boot.to_bytes(16, "big")

    modules = ("atomic", "offset_checkpoint", "log_ends", "clean_shutdown", "partition_metadata")
    patches: list[Any] = [mock.patch(f"pybroker.storage.files.{each}.write_durably", write_durably) for each in modules]
    patches.append(mock.patch("pybroker.storage.files.log_ends.boot_id", boot_id))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _live_as_older(world: World) -> None:
    """After a kill, an older broker has the dirs for a while: it deletes, appends and is killed."""
    path = world.native.path
    if not path.is_dir():
        return
    log = ModelLog(world.machine, path, 0)
    log.delete_as_older(world.rng.randint(log.start, log.end))
    log.append(world.rng.randint(1, 9))


def _live(loop: asyncio.AbstractEventLoop, world: World, life: Life) -> None:
    """Do this and that, and end: by a stop in order, a kill or a power cut."""
    rng, machine = world.rng, world.machine
    ending = rng.choice(("stop", "kill", "kill", "power"))
    step_count = _STEPS_PER_CUTTING_LIFE if world.is_cutting else _STEPS_PER_LIFE
    machine.left = rng.randrange(5 * step_count) if ending != "stop" else -1
    world.is_clean = False
    try:
        loop.run_until_complete(life.remove_deleted())
        for _ in range(step_count):
            loop.run_until_complete(_act(world, life))
            machine.step()
        if ending == "stop":
            world.native.sync()
            loop.run_until_complete(life.checkpoint(is_closed=True))
            for directory in life.directories:
                directory.mark_clean(7)
            world.is_clean = True
    except Killed:
        pass
    machine.left = -1
    if ending == "power":
        machine.boot += 1
        path = world.native.path
        if path.is_dir():
            world.native.bases = sorted(int(each.stem) for each in path.glob("*.log"))
            if world.native.bases:
                world.native.lose_power(rng)


async def _act(world: World, life: Life) -> None:
    native, rng = world.native, world.rng
    actions: list[Callable[[], Coroutine[Any, Any, None]]] = [
        life.checkpoint,
        life.note_written,
        life.note_segments,
        life.note_segments,
        life.clean,
        life.delete_records,
        life.clean,
        life.truncate,
        life.restart,
        life.make_anew,
        life.move,
    ]
    if world.is_cutting:
        actions = [life.checkpoint, life.note_segments, life.truncate, life.truncate, life.truncate]
    action = rng.choice([None, None, None, None, None, *actions])
    if action is not None:
        await action()
        return
    native.append(rng.randint(1, 9))
    if rng.random() < 0.7:
        native.roll()
    if rng.random() < 0.5:
        native.sync()


def _plant(loop: asyncio.AbstractEventLoop, world: World, seed: int) -> int:
    """Damage what a stop in order has left, and see that the next start finds it."""
    path = world.native.path
    if not world.is_clean or not path.is_dir():
        return 0
    life, start, end = Life(world), world.native.start, world.native.end
    bases = list(world.native.bases)
    filled = [each for each in path.glob("*.log") if each.stat().st_size > 0]
    if not filled:
        return 0
    victim = world.rng.choice(sorted(filled))
    how = world.rng.choice(("empty", "shorten", "remove", "directory"))
    if how == "empty":
        victim.write_bytes(b"")
    elif how == "shorten":
        os.truncate(victim, victim.stat().st_size - 1)
    elif how == "remove":
        victim.unlink()
    else:
        shutil.rmtree(path)
    loop.run_until_complete(life.start())
    if not life.found and how != "directory" and _end_of(bases, end, int(victim.stem)) <= start:
        return 0  # what was in it had been deleted
    if not life.found:
        raise Broken(f"seed {seed}: {how} of {victim} was not found")
    lost = life.found[0]
    if not 0 <= lost.first_offset <= lost.end_offset <= lost.next_offset == end:
        raise Broken(f"seed {seed}: {lost}, of a log that ended at {end}")
    return 1


def _end_of(bases: list[int], end: int, base: int) -> int:
    """Where the segment with that base offset ends."""
    return min([each for each in bases if each > base], default=end)
