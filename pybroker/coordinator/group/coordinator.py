"""`GroupCoordinator`: drives the shards of `__consumer_offsets` on the asyncio loop thread.

It owns one `Shard` per partition that this broker leads, from election to resignation. It gives requests to the state
machines, appends the records they make and fires their timers (one loop timer for all). Requests for a shard that is
not here get NOT_COORDINATOR, for one that is being loaded COORDINATOR_LOAD_IN_PROGRESS, both as `KafkaError`. Requests
that only read are served as soon as the shard is readable.

Methods that answer at once return the answer; those that may have to wait return an asyncio future. Where the answer
depends on records, `Committed` says when they are decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from pybroker.coordinator.appender import AfterReceived, QueuedBytes, at_once
from pybroker.coordinator.deadline_clock import LOOK_INTERVAL_MS, DeadlineClock
from pybroker.coordinator.group import shard
from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.memory import GroupMemory
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC, GroupSettings
from pybroker.coordinator.group.model.shard_state import SESSION, Clock, ShardState, random_suffix
from pybroker.coordinator.group.partition import group_partition
from pybroker.coordinator.group.requests import describe, heartbeat, leave, offsets, removal
from pybroker.coordinator.group.requests.join import Join, join
from pybroker.coordinator.group.requests.sync import Sync, sync
from pybroker.coordinator.group.runtime import Shard, ShardStatus
from pybroker.coordinator.group.statistics import GroupStatistics
from pybroker.coordinator.outcome import NOTHING, Outcome, Part
from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.coordinator.timer import TimerKey
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.turns import SteadyDict, in_slices, run_in_slices

logger = logging.getLogger(__name__)

#: Expired timers handled, and groups looked at for expiry, before the loop goes round.
_TIMERS_PER_TURN = 256
_GROUPS_PER_TURN = 512
#: So many are deleted together.
_GROUPS_PER_BATCH = 256
#: Between looks whether a group's commits have landed.
_COMMITS_INTERVAL_S = 0.05
#: Offset commits are refused while so much waits to be appended.
_MOST_QUEUED_BYTES = 64 << 20
#: So long a stop waits for appends. No follower gets anything any more by then, and answers have to leave soon.
_STOP_PATIENCE_S = 2.0

Committed = asyncio.Future[ErrorCode]


class GroupCoordinator:
    """All groups of this broker. Made before the loop runs; `start` and everything after needs the running loop."""

    def __init__(
        self,
        settings: GroupSettings,
        writer: PartitionWriter,
        clock: Clock,
        new_suffix: Callable[[], str] = random_suffix,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._clock = DeadlineClock(clock)
        self._after_received: AfterReceived = at_once
        self._judging = False
        self._new_suffix = new_suffix
        self._memory = GroupMemory(settings.members_max_bytes)
        self._queued = QueuedBytes()
        self._shards: dict[int, Shard] = {}
        #: Those of before that are not closed yet, by partition.
        self._closing: dict[int, list[Shard]] = {}
        self._partition_count = settings.offsets_topic_partition_count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._expiry: asyncio.Task[None] | None = None
        self._stopping = False

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to expire offsets; partitions come by `on_election`."""
        self._loop = asyncio.get_running_loop()
        self._expiry = self._loop.create_task(self._expire_regularly())

    def judge_deadlines(self, after_received: AfterReceived) -> None:
        """Judge deadlines by way of `after_received`: a member whose heartbeat waits in a queue is alive."""
        self._after_received = after_received

    async def stop(self) -> None:
        """Answer what waits with NOT_COORDINATOR and return when no append is under way. Those that take long, as
        without their followers, fail."""
        self._stopping = True
        if self._expiry is not None:
            self._expiry.cancel()
        gone = list(self._shards.values())
        self._shards.clear()
        for one in gone:
            one.unload()
        await self._closed(gone)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _closed(self, gone: Iterable[Shard]) -> None:
        closing = {asyncio.ensure_future(one.closed()): one.partition for one in gone}
        if not closing:
            return
        _, late = await asyncio.wait(closing, timeout=_STOP_PATIENCE_S)
        if late:
            await asyncio.gather(*(self._writer.resign(OFFSETS_TOPIC, closing[each]) for each in late))
            await asyncio.wait(late)

    def set_partition_count(self, partition_count: int) -> None:
        """How many partitions `__consumer_offsets` has, once it exists; until then the setting counts. All brokers have
        to reckon with the same number, or each sends a group elsewhere."""
        assert partition_count > 0
        self._partition_count = partition_count

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads that partition of `__consumer_offsets` now: load it in the background, unless `stop` was
        called. One that it leads already only takes the new epoch, as in Kafka."""
        assert self._loop is not None, "start the coordinator first"
        if self._stopping:
            return
        present = self._shards.get(partition)
        if present is not None and present.leader_epoch >= leader_epoch:
            return
        if present is not None and present.status is not ShardStatus.FAILED:
            present.take_epoch(leader_epoch)
            return
        closing = self._closing.get(partition, [])
        if present is not None:
            present.unload()
            closing = [*closing, present]
        fresh = Shard(
            partition,
            leader_epoch,
            self._settings,
            self._writer,
            self._clock,
            self._new_suffix,
            self._memory,
            self._queued,
            lambda judge: self._after_received(judge),
        )
        self._shards[partition] = fresh
        # Appends queued by a shard of before may still be made, and would be in that one's state alone.
        fresh.begin_load(self._loaded, tuple(closing))

    def on_resignation(self, partition: int) -> Coroutine[Any, Any, None]:
        """That partition is led elsewhere, or gone: forget it at once. The returned coroutine ends when no work of the
        shard is under way."""
        gone = self._shards.pop(partition, None)
        if gone is not None:
            gone.unload()
            self._closing.setdefault(partition, []).append(gone)
        return self._ended(partition, gone)

    async def _ended(self, partition: int, gone: Shard | None) -> None:
        if gone is None:
            return
        await gone.closed()
        closing = self._closing[partition]
        closing.remove(gone)
        if not closing:
            del self._closing[partition]

    async def on_topics_deleted(self, deleted: Iterable[tuple[str, bytes]]) -> None:
        """Remove all offsets of deleted topics, given by name and id; what is being loaded may have some."""
        topics = dict(deleted)
        await asyncio.gather(*(self._forget(one, topics) for one in self._shards.values()))

    async def _forget(self, one: Shard, topics: Mapping[str, bytes]) -> None:
        await one.loaded()
        if one.status is ShardStatus.ACTIVE:
            await self._append_for_groups(one, one.state.offsets.group_ids(), partial(_forgotten, one, topics))

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group lives in."""
        return group_partition(group_id, self._partition_count)

    def is_active(self, partition: int) -> bool:
        """Whether that partition is loaded here and serves requests."""
        one = self._shards.get(partition)
        return one is not None and one.status is ShardStatus.ACTIVE

    def _shard(self, group_id: str) -> Shard:
        return self._loaded_shard(group_partition(group_id, self._partition_count))

    def _loaded_shard(self, partition: int) -> Shard:
        one = self._shards.get(partition)
        if one is None or one.status is ShardStatus.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if one.status is not ShardStatus.ACTIVE:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return one

    def _readable_shard(self, group_id: str) -> Shard:
        partition = group_partition(group_id, self._partition_count)
        one = self._shards.get(partition)
        return one if one is not None and one.status is ShardStatus.READABLE else self._loaded_shard(partition)

    async def end_transaction(
        self, partition: int, producer_id: int, committed: bool, append_marker: Callable[[], Awaitable[None]]
    ) -> None:
        """End a producer's transaction in that partition: offsets committed in it count from now on, or never will.
        `append_marker` writes its end to the partition. KafkaError."""
        one = self._loaded_shard(partition)
        await append_marker()
        # One that was elected meanwhile reads the marker from the log.
        if one.status is ShardStatus.ACTIVE:
            one.replay_end_transaction(producer_id, committed)

    def _active(self, *others: ShardStatus) -> Iterator[Shard]:
        for one in list(self._shards.values()):
            if one.status is ShardStatus.ACTIVE or one.status in others:
                yield one

    # ---- membership ----------------------------------------------------------------------------------------------

    def join_group(self, request: Join) -> None:
        """Handle a JoinGroup; it is answered through `request.reply`. KafkaError when the shard is not active."""
        settings = self._settings
        if not request.group_id:
            request.refuse(ErrorCode.INVALID_GROUP_ID, request.member_id)
        elif not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            request.refuse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        else:
            one = self._shard(request.group_id)
            self._run(one, join(one.state, request))

    def sync_group(self, request: Sync) -> None:
        """Handle a SyncGroup; it is answered through `request.reply`. KafkaError when the shard is not active."""
        if not request.group_id:
            request.refuse(ErrorCode.INVALID_GROUP_ID)
        else:
            one = self._shard(request.group_id)
            self._run(one, sync(one.state, request))

    def heartbeat(self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Handle a Heartbeat; KafkaError when the shard is not active."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        # Sessions only move later here, so the loop timer needs no look.
        return heartbeat.heartbeat(self._shard(group_id).state, group_id, generation_id, member_id, group_instance_id)

    def expire_sessions(self, group_id: str) -> int:
        """End the sessions of all members of a group, as if they had shown no life in time; how many members that
        were. One that waits for the others in a rebalance has no session to end. KafkaError."""
        one = self._shard(group_id)
        group = one.state.groups.get(group_id)
        if group is None:
            return 0
        before_count = len(group.members)
        for member_id in list(group.members):
            key = (SESSION, group_id, member_id)
            if key in one.state.timers:
                one.state.timers.cancel(key)
                self._expire(one, key, None)
        self._arm(one)
        return before_count - len(group.members)

    def leave_group(
        self, group_id: str, identities: list[m.LeaveGroupRequest.MemberIdentity]
    ) -> tuple[m.LeaveGroupResponse, Committed | None]:
        """Handle a LeaveGroup; the response holds once the future (if any) says NONE."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        one = self._shard(group_id)
        response, outcome = leave.leave(one.state, group_id, identities)
        return response, self._run(one, outcome)

    # ---- offsets -------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, api_version: int, request: m.OffsetCommitRequest, topics: list[offsets.CommitTopic]
    ) -> Committed | None:
        """Commit the offsets of `topics` but for what it adds to their `refused`; done once the future says NONE.
        KafkaError, also where so much waits for slow replicas already that this one has to be sent again."""
        one = self._committing_shard(request)
        return self._run(one, offsets.commit(one.state, api_version, request, topics, one.appender.max_batch_bytes()))

    async def commit_many_offsets(
        self,
        api_version: int,
        request: m.OffsetCommitRequest,
        topics: list[offsets.CommitTopic],
        is_there: Callable[[offsets.CommitTopic], bool],
    ) -> Committed | None:
        """As `commit_offsets`, in slices of the loop: not of topics that are not there any more in the end."""
        one = self._committing_shard(request)
        offsets.check_committer(one.state, api_version, request)
        steps = offsets.commit_steps(one.state, request, topics, one.appender.max_batch_bytes())
        made = await run_in_slices(steps)
        # Meanwhile the group may have gone on without this member, or to another broker.
        if self._shard(request.group_id) is not one:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        offsets.check_committer(one.state, api_version, request)
        records = [record for topic, of_topic in made if is_there(topic) for record in of_topic]
        return self._run(one, offsets.committed(one.state, request.group_id, records))

    def _committing_shard(self, request: m.OffsetCommitRequest) -> Shard:
        if self._queued.held_bytes >= _MOST_QUEUED_BYTES:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._shard(request.group_id)

    async def fetch_offsets(
        self, group_id: str, topic: str, topic_id: bytes, partitions: Iterable[int], require_stable: bool
    ) -> list[offsets.FetchedOffset]:
        """Committed offsets of some partitions of one topic."""
        state = await self._replayed_state(group_id)
        return await offsets.fetch(state, group_id, topic, topic_id, partitions, require_stable)

    async def fetch_all_offsets(self, group_id: str, require_stable: bool) -> dict[str, list[offsets.FetchedOffset]]:
        """All committed offsets of a group, by topic."""
        return await offsets.fetch_all(await self._replayed_state(group_id), group_id, require_stable)

    async def _replayed_state(self, group_id: str) -> ShardState:
        """For who reads offsets: not while a commit of many is there in part."""
        one = self._readable_shard(group_id)
        await one.appender.replayed()
        # The partition may have moved to another broker meanwhile.
        if self._readable_shard(group_id) is not one:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return one.state

    def check_readable(self, group_id: str) -> None:
        """KafkaError when nothing can be read of the group's shard."""
        self._readable_shard(group_id)

    def delete_offsets(
        self, group_id: str, topics: Iterable[tuple[str, list[int]]]
    ) -> tuple[dict[tuple[str, int], ErrorCode], Committed | None]:
        """Results by (topic, partition); those of deleted offsets hold once the future says NONE."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        one = self._shard(group_id)
        results, outcome = offsets.delete(one.state, group_id, topics)
        return results, self._run(one, outcome)

    # ---- administration ------------------------------------------------------------------------------------------

    async def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[m.ListGroupsResponse.ListedGroup]:
        """Groups of all readable shards; names of states and types count without case, none means all.

        Raises COORDINATOR_LOAD_IN_PROGRESS while any shard is being loaded: the list would not be whole.
        """
        if any(one.status is ShardStatus.LOADING for one in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted_states = frozenset({name.strip().lower() async for name in in_slices(states)})
        wanted_types = frozenset({name.strip().lower() async for name in in_slices(types)})
        return [
            listed
            for one in self._active(ShardStatus.READABLE)
            async for group in in_slices(list(one.state.groups.values()))
            if (listed := describe.listed(group, wanted_states, wanted_types)) is not None
        ]

    def describe_group(self, group_id: str, api_version: int) -> m.DescribeGroupsResponse.DescribedGroup:
        """One group with its members; KafkaError when its shard is not readable."""
        return describe.describe_group(self._readable_shard(group_id).state, group_id, api_version)

    async def delete_groups(self, group_ids: Iterable[str]) -> SteadyDict[str, ErrorCode]:
        """Delete groups that have no members, with their offsets; a result for each. COORDINATOR_NOT_AVAILABLE: it took
        too long, and may be tried again."""
        results: SteadyDict[str, ErrorCode] = SteadyDict()
        #: By shard: when a partition comes back its groups are others, and may have members.
        closed: dict[Shard, list[ClassicGroup]] = {}
        async for group_id in in_slices(group_ids):
            if group_id in results:
                continue
            try:
                one = self._shard(group_id)
            except KafkaError as failure:
                results[group_id] = failure.code
                continue
            results[group_id], group = removal.close_for_delete(one.state, group_id)
            if group is not None:
                closed.setdefault(one, []).append(group)
        deciding: list[tuple[list[ClassicGroup], Committed]] = []
        deadline_s = self._now_s() + self._settings.offsets_commit_timeout_ms / 1000
        try:
            for one, groups in list(closed.items()):
                error = await self._commits_landed(one, groups, deadline_s)
                while groups and error is ErrorCode.NONE:
                    some = groups[:_GROUPS_PER_BATCH]
                    outcome = await removal.delete_closed(one.state, some)
                    if self._shards.get(one.partition) is not one:
                        error = ErrorCode.NOT_COORDINATOR
                        break
                    del groups[:_GROUPS_PER_BATCH]
                    committed = self._run(one, outcome)
                    assert committed is not None, "a closed group has a tombstone at least"
                    deciding.append((some, committed))
                for group in groups:
                    results[group.group_id] = error
        finally:
            # There was no time, or the request was cancelled.
            for groups in closed.values():
                removal.reopen(groups)
        for groups, committed in deciding:
            error = await committed
            for group in groups:
                results[group.group_id] = error
        return results

    async def _commits_landed(self, one: Shard, groups: list[ClassicGroup], deadline_s: float) -> ErrorCode:
        """Wait until no commit of the groups is in flight: one that lands after the tombstones would outlive its
        group. As in Kafka no longer than a write may take."""
        while self._shards.get(one.partition) is one:
            if not any(group.group_id in one.state.in_flight_commits for group in groups):
                return ErrorCode.NONE
            if self._now_s() >= deadline_s:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(_COMMITS_INTERVAL_S)
        return ErrorCode.NOT_COORDINATOR

    def _now_s(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    async def statistics(self, most_offsets: int) -> GroupStatistics:
        """Groups and offsets of all readable shards; of the offsets themselves no more than `most_offsets`. The loop
        goes round between shards."""
        memory = self._memory
        found = GroupStatistics(most_offsets, memory.held_bytes, memory.limit_bytes, memory.refused_count)
        for one in self._active(ShardStatus.READABLE):
            if one.state.groups or one.state.offsets.group_ids():
                found.add(one.state)
                await asyncio.sleep(0)
        return found

    # ---- the machinery -------------------------------------------------------------------------------------------

    def _run(self, one: Shard, outcome: Outcome) -> Committed | None:
        committed = one.appender.submit(outcome) if outcome.records else None
        if committed is not None and outcome.is_parked:
            committed.add_done_callback(partial(self._on_answer, one, outcome))
        self._arm(one)
        return committed

    def _on_answer(self, one: Shard, outcome: Outcome, committed: Committed) -> None:
        """Clients are told: if that is because it takes too long, those who are parked are told as well."""
        if committed.cancelled() or one.status is not ShardStatus.ACTIVE:
            return
        if (error := committed.result()) is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            assert outcome.on_append is not None, "who is parked is told by it"
            self._run(one, outcome.on_append(error))

    def _loaded(self, one: Shard) -> None:
        for outcome in shard.on_loaded(one.state):
            self._run(one, outcome)
        self._arm(one)

    def _arm(self, one: Shard) -> None:
        """See to it that the loop timer fires when the shard's earliest deadline passes, and for a look at the clock
        before."""
        earliest_ms = one.state.timers.earliest_ms
        if earliest_ms is None or (self._timer is not None and self._armed_ms <= earliest_ms):
            return
        assert self._loop is not None
        if self._timer is None:
            self._clock.look()
        else:
            self._timer.cancel()
        now_ms = self._clock.monotonic_ms()
        # Those that have passed are being judged.
        soonest_ms = now_ms + LOOK_INTERVAL_MS if self._judging else now_ms
        self._armed_ms = max(min(earliest_ms, now_ms + LOOK_INTERVAL_MS), soonest_ms)
        self._timer = self._loop.call_later((self._armed_ms - now_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        stood_still_ms = self._clock.look()
        if stood_still_ms:
            logger.warning(
                "the control loop stood still for %d ms: sessions and rebalances of groups are extended by as much",
                stood_still_ms,
            )
        now_ms = self._clock.monotonic_ms()
        earliest = [one.state.timers.earliest_ms for one in self._active()]
        if not self._judging and any(each is not None and each <= now_ms for each in earliest):
            self._judging = True
            # Requests received up to now may show that a member is alive.
            self._after_received(partial(self._judge, now_ms))
        if self._timer is None:
            self._look_again()

    def _look_again(self) -> None:
        """Arm for all shards; without deadlines the clock rests."""
        self._clock.rest()
        for one in self._active():
            self._arm(one)

    def _judge(self, now_ms: int) -> None:
        """Deal with the deadlines that had passed at `now_ms` and still have."""
        self._judging = False
        for one in self._active():
            for _ in range(_TIMERS_PER_TURN):
                expired = one.state.timers.pop_expired(now_ms)
                if expired is None:
                    break
                self._expire(one, *expired)
            self._arm(one)

    def _expire(self, one: Shard, key: TimerKey, payload: Any) -> None:
        try:
            outcome = shard.on_timer(one.state, key, payload)
        except Exception:
            logger.exception("group %s: its timer %s could not be handled", key[1], key)
            return
        if outcome.records:
            one.appender.submit(outcome)

    async def _expire_regularly(self) -> None:
        interval_s = self._settings.offsets_retention_check_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.expire_offsets()
            except Exception:
                logger.exception("offsets that are over could not all be removed; tried again in %g s", interval_s)

    async def expire_offsets(self) -> None:
        """Look once at all groups for offsets and groups whose time is over."""
        for one in self._active():
            await self._append_for_groups(one, list(one.state.groups), partial(_expired, one))

    async def _append_for_groups(self, one: Shard, group_ids: list[str], make: Callable[[str], Part]) -> None:
        """Append what `make` has for each group until there is no more; waits for the log, and lets the loop go round,
        now and then."""
        while group_ids:
            unfinished: list[str] = []
            for start in range(0, len(group_ids), _GROUPS_PER_TURN):
                unfinished += await self._append_parts(one, group_ids[start : start + _GROUPS_PER_TURN], make)
                await asyncio.sleep(0)
                if one.status is not ShardStatus.ACTIVE:
                    return
            group_ids = unfinished

    async def _append_parts(self, one: Shard, group_ids: list[str], make: Callable[[str], Part]) -> list[str]:
        """Append one part for each group; the groups that have more."""
        waiting: list[Committed] = []
        unfinished: dict[str, Committed | None] = {}
        async for group_id in in_slices(group_ids, 1):
            if one.status is not ShardStatus.ACTIVE:
                break
            outcome, is_last = make(group_id)
            # In the step that made it: a tombstone behind a commit that came after that would take the commit away.
            committed = one.appender.submit(outcome) if outcome.records else None
            if committed is not None:
                waiting.append(committed)
            if not is_last:
                unfinished[group_id] = committed
        failed = {error for error in await asyncio.gather(*waiting) if error is not ErrorCode.NONE}
        for error in failed:
            logger.warning("%s-%d: offsets that are over stay for now: %s", OFFSETS_TOPIC, one.partition, error.name)
        if unfinished and not waiting:
            await asyncio.sleep(_COMMITS_INTERVAL_S)
        return [name for name, part in unfinished.items() if part is None or part.result() is ErrorCode.NONE]


def _expired(one: Shard, group_id: str) -> Part:
    group = one.state.groups.get(group_id)
    if group is None:
        return Part(NOTHING, is_last=True)
    return removal.expire_group(one.state, group, one.appender.max_batch_bytes())


def _forgotten(one: Shard, topics: Mapping[str, bytes], group_id: str) -> Part:
    return removal.forget_topics(one.state, topics, group_id, one.appender.max_batch_bytes())
