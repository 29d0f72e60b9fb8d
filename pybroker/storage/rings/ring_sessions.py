"""`.pybroker_tail_rings` of a log dir that is missing or damaged after an unclean stop, made anew from the rings.

Each ring says of which session it is, and of which log dir. Where all that have bytes of a log dir are of one session
and of this boot of the machine, that is the session the file named. Rings that a log does not take stay where they
are, as with the file. Before the log dirs are loaded; blocks. Fails with `StorageError` and `OSError`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from pybroker.native.errors import NativeError
from pybroker.native.rings import RingFile, boot_id, read_ring
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown
from pybroker.storage.rings import tail_rings
from pybroker.storage.rings.tail_rings import RingSession

logger = logging.getLogger(__name__)


def make_anew(log_dir: Path, directory_id: bytes, parent: Path) -> None:
    """Look for rings of the log dir below `parent`, where nothing else says where they are."""
    path = log_dir / tail_rings.FILE_NAME
    if clean_shutdown.read(log_dir) is not None:
        return
    try:
        if RingSession.read(log_dir) is not None:
            return
        problem = f"{path} is missing"
    except StorageError as error:
        problem = str(error)
    found = {(ring.session_id, ring.path.parent) for ring in _rings_of(directory_id, parent)}
    if len(found) != 1:
        return
    ((session_id, directory),) = found
    logger.warning(
        "%s. It is made anew from the tail rings in %s, which have records of this log dir", problem, directory
    )
    RingSession(directory, session_id, boot_id()).write(log_dir)


def _rings_of(directory_id: bytes, parent: Path) -> Iterator[RingFile]:
    boot = boot_id()
    for directory in sorted(parent.glob("pybroker-*")):
        for path in sorted(directory.glob("*.ring")):
            if not path.is_file():
                continue
            try:
                ring = read_ring(path)
            except NativeError as error:
                logger.debug("%s", error)  # is told when the rings are replayed
                continue
            if (
                ring.is_sealed
                and ring.boot_id == boot
                and ring.directory_id == directory_id
                and ring.gathered_bytes > 0
            ):
                yield ring
