"""`LogDirWatch`: what follows when a log dir of a running broker fails or is cordoned. On the asyncio loop.

The controller is told which dirs are in service, so that it places nothing elsewhere and Metadata tells clients what is
offline (KIP-858). Without the dir of the metadata log, or without any, the broker stops, as Apache Kafka does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.errors import MetadataLogError
from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage
from pybroker.server.metadata_controller import MetadataController
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog

_ALL = "*"


class LogDirWatch:
    """`start` once the broker is registered. A follower of the replica manager, for changes of cordoned.log.dirs."""

    def __init__(
        self, controller: MetadataController, logs: LogManager, metadata: bytes | None, stop: Callable[[str], None]
    ) -> None:
        """`metadata` is the directory id of the dir with the metadata log, None where that is kept elsewhere; `stop`
        ends the broker for a reason."""
        self._controller = controller
        self._logs = logs
        self._metadata = metadata
        self._stop = stop
        self._telling: asyncio.Task[None] | None = None
        self._due = False
        self._started = False

    def check(self) -> None:
        """StorageError when the broker cannot run with what is in service."""
        reason = self._why_stop()
        if reason is not None:
            raise StorageError(reason)

    def _why_stop(self) -> str | None:
        metadata = [each for each in self._logs.directories if each.directory_id == self._metadata]
        if metadata and metadata[0].failure is not None:
            return f"log dir {metadata[0].path}, which has the metadata log, cannot be used: {metadata[0].failure}"
        if not self._logs.live:
            reasons = "; ".join(f"{path}: {why}" for path, why in self._logs.failures.offline.items())
            return f"none of log.dirs can be used: {reasons}"
        return None

    @property
    def in_service(self) -> tuple[bytes, ...]:
        """The ids of the log dirs in service."""
        return tuple(each.directory_id for each in self._logs.live)

    @property
    def cordoned(self) -> tuple[bytes, ...]:
        """The ids of those that get no new partitions (KIP-1066)."""
        names = self._controller.config.get_list("cordoned.log.dirs")
        return tuple(each.directory_id for each in self._logs.directories if _ALL in names or str(each.path) in names)

    def start(self) -> None:
        """From now on tell the controller."""
        self._started = True
        self._tell()

    async def stop(self) -> None:
        """Tell no more. A broker that stops does not wait for controllers that cannot be reached."""
        self._started = False
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`."""
        del image
        # With an older metadata.version the registration names no log dirs; a newer one makes up for that.
        if delta.feature_levels_changed or any(kind == RESOURCE_BROKER for kind, _ in delta.configs_changed):
            self._tell()

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """See `FailureHandler`."""
        del directory
        reason = self._why_stop()
        if reason is not None:
            self._stop(reason)
        else:
            self._tell()

    def on_log_failed(self, log: PartitionLog) -> None:
        """See `FailureHandler`."""

    def _tell(self) -> None:
        self._due = self._started
        if self._due and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_controller(), name="log dirs")

    async def _tell_controller(self) -> None:
        try:
            while self._due:
                self._due = False
                timeout_ms = self._controller.config.get_int("log.dir.failure.timeout.ms")
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._controller.change_directories(self.in_service, self.cordoned)
        except TimeoutError:
            self._stop(f"the controller could not be told of the failed log dirs in {timeout_ms} ms")
        except MetadataLogError as error:
            self._stop(str(error))
        finally:
            self._telling = None
