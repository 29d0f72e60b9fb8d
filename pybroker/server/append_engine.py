"""The append engine that a broker runs with: what was asked for, as far as this machine has it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.profiles import Profile
from pybroker.storage import ring_sessions, tail_rings
from pybroker.storage.errors import StorageError
from pybroker.storage.full_disk import is_full
from pybroker.storage.log_directory import LogDirectory
from pybroker.storage.meta_properties import FILE_NAME as META_PROPERTIES

logger = logging.getLogger(__name__)

PACED = "paced"
DIRECT = "direct"


def start_append_engine(
    broker: NativeBroker, profile: Profile, config: BrokerConfig, directories: Sequence[LogDirectory]
) -> str:
    """Make ready what the engine needs, before any log is opened; the engine that logs will have. StorageError when
    `direct` was set explicitly and its directory for rings cannot be used; one that the hardware profile chose falls
    back to paced, and so does any where a log dir is full. Blocking."""
    able = [each for each in directories if profile.append_engine == DIRECT and _has_direct_io(each.path)]
    parent = Path(config.get_str("pybroker.tail.ring.directory"))
    rings = tail_rings.ring_directory(parent, directories[0].directory_id)
    try:
        if able:
            tail_rings.begin(
                broker,
                rings,
                [(each.path, each.directory_id) for each in able],
                budget_bytes=profile.tail_ring_budget_bytes,
                hot_bytes_per_second=config.get_int("pybroker.tail.ring.hot.bytes.per.second"),
            )
    except (NativeError, StorageError, OSError) as error:  # a full disk is no reason not to start
        is_asked_for = config.get_str("pybroker.append.engine") == DIRECT
        if is_asked_for and (isinstance(error, StorageError) or not is_full(error)):
            raise StorageError(f"the append engine direct cannot be used: {error}") from error
        logger.warning("the append engine is paced, because direct cannot be used: %s", error)
        able = []
    for each in directories:
        if each not in able:
            tail_rings.forget(each.path)  # of rings that were lost: the logs go on without them
    return DIRECT if able else PACED


def find_rings(directories: Sequence[LogDirectory], config: BrokerConfig) -> None:
    """Where rings of these dirs may be that nothing says any more, before their logs are read. What cannot be read here
    is told when the dir is loaded. Blocking."""
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
