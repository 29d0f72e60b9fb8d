"""The append engine that a broker runs with: what was asked for, as far as this machine has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pybroker.config.broker import BrokerConfig
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.profiles import Profile
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.rings import ring_sessions, tail_rings

logger = logging.getLogger(__name__)

PACED = "paced"
DIRECT = "direct"

#: Between attempts to go on with `direct` on a disk that was full.
_RESUME_INTERVAL_S = 5.0


class AppendEngine:
    """The engine that logs have, `name`. Where a full disk has kept `direct` from them, `start` tries again until there
    is room: logs that are open change to it when they are written to steadily. `stop` before they are closed."""

    def __init__(self, name: str, resume: _Resume | None = None) -> None:
        self.name = name
        self._resume = resume
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, changed: Callable[[str], None]) -> None:
        """Begin; needs the running loop. `changed` is told of another name."""
        if self._resume is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._resume, changed), name="append engine")

    async def stop(self) -> None:
        """Return when nothing of it is under way: what it writes into the log dirs would outlive the rings."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self, resume: _Resume, changed: Callable[[str], None]) -> None:
        while not await self._is_stopped_within(_RESUME_INTERVAL_S):
            try:
                await asyncio.to_thread(tail_rings.announce, resume.session, resume.log_dirs)
                tail_rings.admit(resume.broker, resume.log_dirs)
            except (OSError, NativeError) as error:
                if is_full(error):
                    continue
                logger.warning("the append engine stays paced, because direct cannot be used: %s", error)
            else:
                self.name = DIRECT
                changed(self.name)
                logger.info("there is room on the disks: the append engine is direct from now on")
            return

    async def _is_stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()


class _Resume(NamedTuple):
    """The work left to do for rings; `log_dirs` as (path, directory id)."""

    broker: NativeBroker
    session: tail_rings.RingSession
    log_dirs: list[tuple[Path, bytes]]


def start_append_engine(
    broker: NativeBroker, profile: Profile, config: BrokerConfig, directories: Sequence[LogDirectory]
) -> AppendEngine:
    """Make ready what the engine needs, before any log is opened; the engine that logs will have. StorageError when
    `direct` was set explicitly and its directory for rings cannot be used. An engine that the hardware profile chose
    falls back to paced. So does any where a log dir is full, until there is room. Blocking."""
    able = [
        (each.path, each.directory_id)
        for each in directories
        if profile.append_engine == DIRECT and _has_direct_io(each.path)
    ]
    parent = Path(config.get_str("pybroker.tail.ring.directory"))
    rings = tail_rings.ring_directory(parent, directories[0].directory_id)
    session, resume = None, None
    try:
        if able:
            session = tail_rings.begin(
                broker,
                rings,
                budget_bytes=profile.tail_ring_budget_bytes,
                hot_bytes_per_second=config.get_int("pybroker.tail.ring.hot.bytes.per.second"),
            )
            tail_rings.announce(session, able)
            tail_rings.admit(broker, able)
    except (NativeError, StorageError, OSError) as error:  # a full disk is no reason not to start
        will_pass = not isinstance(error, StorageError) and is_full(error)
        if config.get_str("pybroker.append.engine") == DIRECT and not will_pass:
            raise StorageError(f"the append engine direct cannot be used: {error}") from error
        if will_pass and session is not None:
            resume = _Resume(broker, session, able)
        until = " until there is room" if resume is not None else ""
        logger.warning("the append engine is paced%s, because direct cannot be used: %s", until, error)
        able = []
    served = {path for path, _ in able}
    for each in directories:
        if each.path not in served:
            tail_rings.forget(each.path)  # of rings that were lost: the logs go on without them
    return AppendEngine(DIRECT if able else PACED, resume)


def find_rings(directories: Sequence[LogDirectory], config: BrokerConfig) -> None:
    """Where rings of these dirs may be that nothing says any more, before their logs are read. Files that cannot be
    read here are told when the dir is loaded. Blocking."""
    parent = Path(config.get_str("pybroker.tail.ring.directory"))
    for each in directories:
        with contextlib.suppress(OSError):
            ring_sessions.make_anew(each.path, each.directory_id, parent)


def _has_direct_io(log_dir: Path) -> bool:
    try:
        os.close(os.open(log_dir / META_PROPERTIES, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError as error:
        logger.warning("%s has no direct I/O, so the append engine of its logs is paced: %s", log_dir, error)
        return False
    return True
