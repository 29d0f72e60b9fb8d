"""Events of a partition that follows, in words for the log."""

from __future__ import annotations

import logging

from pybroker.native.fetcher import (
    FOLLOWER_CHECKPOINT,
    FOLLOWER_CORRUPT,
    FOLLOWER_CUT,
    FOLLOWER_RESTARTED,
    FOLLOWER_STOPPED,
)
from pybroker.storage.logs.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_TEXTS = {
    FOLLOWER_RESTARTED: (
        logging.WARNING,
        "%s: what it had lies outside of its leader's log and is gone; it begins anew at offset %d",
    ),
    FOLLOWER_CUT: (
        logging.ERROR,
        "%s: its log is cut to end at offset %d, as its leader's does. Records that consumers may have read are gone, "
        "as happens when a replica that was not in sync was made the leader (unclean.leader.election.enable)",
    ),
    FOLLOWER_CORRUPT: (
        logging.ERROR,
        "%s: what its leader sent for offset %d is damaged; it is fetched again. If that goes on, the leader's log is",
    ),
    FOLLOWER_CHECKPOINT: (logging.INFO, "%s: it is cut to end at offset %d, as its leader's log does"),
    FOLLOWER_STOPPED: (logging.ERROR, "%s: it could not take over what its leader has, and stands still at offset %d"),
}


def tell(log: PartitionLog, news: int, offset: int) -> None:
    """Write a line about a FOLLOWER event."""
    level, text = _TEXTS[news]
    logger.log(level, text, log, offset)
