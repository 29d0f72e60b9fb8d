"""`AutoTopicCreation`: starts the creation of topics that clients use and that do not exist. On the asyncio loop.

As in Apache Kafka, the request that finds a topic missing does not wait for its creation. The client is told that the
topic is unknown, asks again, and finds it. A topic is under way until its creation is answered and this broker's
partitions of it are served. While the metadata lack it, or it is not served here yet, it is answered as missing: a
client that finds it can produce to it at once. A controller that does not answer hides no topic that is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import INTERNAL_TOPICS
from pybroker.controller.auto_create import auto_create_request
from pybroker.controller.state import MAX_RECORDS_PER_OPERATION
from pybroker.metadata.errors import MetadataLogError
from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode, VersionNotTaken, code_name
from pybroker.server.served_controller import ServedController
from pybroker.turns import in_slices

logger = logging.getLogger(__name__)

#: No controller creates more topics with one request. More than these are never under way together, internal topics
#: aside: those are few, and groups need them whatever other clients ask for.
MOST_TOPICS = MAX_RECORDS_PER_OPERATION
#: The reasons of so many failures are remembered, so that clients who ask on and on do not fill the log.
_FAILURES_MAX = 1_000


class AutoTopicCreation:
    """`begin` starts a creation, `close` ends what is under way."""

    def __init__(
        self,
        controller: ServedController,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        """`config` and `image` give the newest of each."""
        self._controller = controller
        self._config = config
        self._image = image
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, str] = {}
        self._is_full = False
        self._is_closed = False

    def __contains__(self, name: str) -> bool:
        """Whether the creation of this topic is under way."""
        return name in self._under_way

    def failure(self, name: str) -> str | None:
        """Why the last attempt to create this topic failed; None when it did not."""
        return self._failures.get(name)

    async def finished(self) -> None:
        """Return when every creation that is under way now has ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def begin(self, names: Iterable[str], origin: Origin) -> bool:
        """Start to create those of `names` that are not under way, in the name of `origin`: its quota bounds them.

        Whether all of `names` are under way now. Where there is no room for all of them, the first ones are started;
        the client's next request tries the others again. Nothing is started after `close`: requests are served until
        the broker has told the controller.
        """
        if self._is_closed:
            return False
        new = [name for name in names if name not in self._under_way]
        internal = [name for name in new if name in INTERNAL_TOPICS]
        others = [name for name in new if name not in INTERNAL_TOPICS]
        other_count = len(self._under_way - INTERNAL_TOPICS)
        room = max(0, MOST_TOPICS - other_count - len(internal))
        left = set(others[room:])
        if left:
            self._tell_full(len(left), other_count)
        elif others:
            self._is_full = False
        started = [name for name in new if name not in left]
        if started:
            self._start(started, origin)
        return not left

    def _start(self, names: list[str], origin: Origin) -> None:
        self._under_way.update(names)
        task = asyncio.get_running_loop().create_task(self._create(names, origin), name="auto topic creation")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_full(self, left_count: int, other_count: int) -> None:
        if not self._is_full:
            logger.warning(
                "%d topics that a client asked for are not created yet: no more than %d can be created at a time, and "
                "%d others were under way. The client's next request tries again",
                left_count,
                MOST_TOPICS,
                other_count,
            )
        self._is_full = True

    async def _create(self, names: list[str], origin: Origin) -> None:
        try:
            live_count = sum(not each.fenced for each in self._image().cluster.brokers.values())
            request = auto_create_request(self._config(), names, live_count)
            version = self._controller.newest_version(request)
            response = await self._controller.perform(request, version, origin)
            async for result in in_slices(response.topics):
                self._note(result)
        except VersionNotTaken as error:
            # An older controller has become active meanwhile. It takes the next attempt.
            self._note_all(names, str(error))
        except MetadataLogError as error:
            # The broker is about to stop, and has said why.
            logger.warning("%d topics that a client asked for are not created: %s", len(names), error)
        except Exception:  # a defect: the clients ask again
            logger.exception("%d topics that a client asked for could not be created", len(names))
        finally:
            self._under_way.difference_update(names)

    def _note(self, result: m.CreateTopicsResponse.CreatableTopicResult) -> None:
        """Remember and log a failure. Another client, or an administrator, may have created the topic meanwhile."""
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._failures.pop(result.name, None)
            return
        why = f"{code_name(result.error_code)} {result.error_message or ''}".rstrip()
        if self._remember(result.name, why):
            # Without an internal topic groups are not served; any client may ask for what cannot be.
            level = logging.ERROR if result.name in INTERNAL_TOPICS else logging.WARNING
            logger.log(level, "topic %s, which a client asked for, cannot be created: %s", result.name, why)

    def _note_all(self, names: list[str], why: str) -> None:
        """Remember and log a failure of a request as a whole, whose topics may be many."""
        # More would only be forgotten again.
        new = [name for name in names[-_FAILURES_MAX:] if self._remember(name, why)]
        if new:
            logger.warning("%d topics that a client asked for are not created: %s", len(names), why)

    def _remember(self, name: str, why: str) -> bool:
        """Whether that is news."""
        is_known = self._failures.pop(name, None) == why
        self._failures[name] = why
        if len(self._failures) > _FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        return not is_known

    async def close(self) -> None:
        """Create nothing more. Requests that the controller has already are not taken back."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
