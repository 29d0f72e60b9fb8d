"""The observable state of a broker, from its first moment to its last. The daemon fills it in as it starts.

Belongs to the asyncio loop; `native` may be asked by any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.config.broker import BrokerConfig
from pybroker.native.broker import NativeBroker
from pybroker.observability.event_log import EventLog

if TYPE_CHECKING:
    from pybroker.server.api import BrokerServices
    from pybroker.storage.logs.log_cleaner import LogCleaner
    from pybroker.storage.logs.log_manager import LogManager
    from pybroker.storage.logs.log_scrub import LogScrub

STARTING = "starting"
RECOVERING = "recovering"
SERVING = "serving"
CLOSING = "closing"


@dataclass(slots=True)
class Observed:
    """A broker as its observer sees it; what is None is not there yet."""

    native: NativeBroker
    config: BrokerConfig
    events: EventLog
    profile_name: str
    phase: str = STARTING
    #: Logs that recovery has to open.
    assigned_count: int = 0
    append_engine: str = ""
    durability: str = ""
    #: Why the broker cannot go on.
    failure: str | None = None
    logs: LogManager | None = None
    services: BrokerServices | None = None
    cleaner: LogCleaner | None = None
    scrub: LogScrub | None = None
