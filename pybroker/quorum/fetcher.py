"""`MetadataFetcher`: reads the quorum's metadata log as an observer (KIP-595, KIP-630) and publishes images of it.

A task on the asyncio loop. It finds the active controller by asking: who does not lead answers with who does. Only
what the quorum has committed is replayed, and a metadata transaction (KIP-868) only when it has ended. A record of a
type or version that is not known here ends it (`MetadataError`): to skip it would let this broker's state drift from
the cluster's in silence. Whatever else goes wrong with one controller, damaged bytes included, is tried again with the
next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import BatchReplayer, replacing_delta
from pybroker.metadata.log_files import SnapshotId
from pybroker.metadata.records import SNAPSHOT_FOOTER, ControlRecord, MetadataBatch
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError, code_name
from pybroker.protocol.uuids import METADATA_TOPIC_ID, uuid_to_text
from pybroker.quorum.connection import Address, QuorumConnection
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.observer_log import ObserverLog, split_batches
from pybroker.quorum.signal import Signal
from pybroker.turns import run_in_slices
from pybroker.values import Value

logger = logging.getLogger(__name__)

#: So long a controller holds a fetch back while there is nothing new.
_MAX_WAIT_MS = 500
_METADATA_TOPIC = "__cluster_metadata"
_WHO_LEADS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
_GONE = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)

Publish = Callable[[MetadataDelta, MetadataImage], None]

#: A larger answer is decoded by a thread.
_LARGE_BYTES = 64 << 10


class FetcherSettings(Value):
    """The identity and the patience of the fetcher. `directory_id` is of the log dir with which this broker
    observes."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    request_timeout_s: float
    retry_backoff_s: float
    fetch_max_bytes: int
    snapshot_max_bytes: int


class MetadataFetcher:
    """`run` until it is cancelled or cannot go on. `image` is the newest that was published."""

    def __init__(self, settings: FetcherSettings, finder: LeaderFinder, publish: Publish) -> None:
        """`publish` gets each image, and what is different in it from the one before; it must not raise."""
        self.image = empty_image(settings.cluster_id)
        self._settings = settings
        self._finder = finder
        self._to_publish = publish
        self._log = ObserverLog()
        self._connection: QuorumConnection | None = None
        self._replayer: BatchReplayer | None = None
        self._progress = Signal()
        #: None while the operator knows of a trouble.
        self._was_told: str | None = ""

    # ---- what others wait for --------------------------------------------------------------------------------------

    async def caught_up(self) -> None:
        """Return when everything that a leader has told to be committed is published."""
        await self._progress.until(lambda: self._log.is_caught_up and self._replayer is None)

    async def until(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Return when `holds` is true of the published image."""
        await self._progress.until(lambda: holds(self.image))

    # ---- fetching --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch for ever. MetadataError when this broker cannot go on."""
        try:
            while True:
                address = self._finder.address
                try:
                    await self._fetch(address)
                except (OSError, ProtocolError) as error:
                    self._tell_trouble(f"controller {address[0]}:{address[1]}: {error or type(error).__name__}")
                    await self._give_up(address)
        finally:
            self._disconnect()

    async def _fetch(self, address: Address) -> None:
        """One fetch, and all that follows from its answer."""
        if self._connection is None or self._connection.address != address:
            self._disconnect()
            client_id = f"raft-client-{self._settings.node_id}"
            self._connection = await QuorumConnection.open(address, client_id, self._settings.request_timeout_s)
        answer = await self._connection.call(self.request(_MAX_WAIT_MS), self._settings.request_timeout_s)
        self._check(address, answer.error_code)
        partition = _partition_of(answer)
        if partition.error_code in _WHO_LEADS:
            await self._follow_hint(address, partition, answer)
            return
        self._check(address, partition.error_code)
        self._finder.answered(address)
        self._tell_found(address)
        if partition.diverging_epoch.end_offset >= 0:
            self._log.truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
        elif partition.snapshot_id.end_offset >= 0:
            await self._load_snapshot(SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
        else:
            data = partition.records or b""
            if len(data) > _LARGE_BYTES:
                await asyncio.to_thread(self._log.append, data, _name(address))
            else:
                self._log.append(data, _name(address))
            self._log.raise_high_watermark(partition.high_watermark)
            await self._replay()

    def request(self, max_wait_ms: int) -> m.FetchRequest:
        """A Fetch from where this observer is."""
        settings = self._settings
        wanted = m.FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=self._finder.epoch,
            fetch_offset=self._log.end_offset,
            last_fetched_epoch=self._log.last_epoch,
            replica_directory_id=settings.directory_id,
            high_watermark=self._log.high_watermark,
        )
        return m.FetchRequest(
            cluster_id=settings.cluster_id,
            replica_state=m.FetchRequest.ReplicaState(replica_id=settings.node_id),
            max_wait_ms=max_wait_ms,
            max_bytes=settings.fetch_max_bytes,
            session_epoch=0,
            topics=[m.FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
        )

    def _check(self, address: Address, code: int) -> None:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise QuorumError(
                f"the controller at {_name(address)} belongs to another cluster than this broker, whose log dirs say "
                f"{self._settings.cluster_id}: check controller.quorum.bootstrap.servers and log.dirs"
            )
        if code != ErrorCode.NONE:
            raise ProtocolError(f"Fetch of metadata was answered with {code_name(code)}")

    async def _follow_hint(self, address: Address, partition: Any, answer: Any) -> None:
        before = self._finder.leader
        hint = partition.current_leader
        endpoints = {each.node_id: (each.host, each.port) for each in answer.node_endpoints}
        self._finder.heard(hint.leader_id, hint.leader_epoch, endpoints.get(hint.leader_id))
        if self._finder.leader is None or self._finder.leader == before:
            self._tell_trouble(f"controller {_name(address)} does not lead, and names no other that answers")
            await self._give_up(address)

    async def _give_up(self, address: Address) -> None:
        """Ask another one next; after a round through all of them not at once."""
        self._disconnect()
        self._finder.failed(address)
        if self._finder.has_asked_all:
            await asyncio.sleep(self._settings.retry_backoff_s)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- from records to images ------------------------------------------------------------------------------------

    async def _replay(self) -> None:
        """Put what is committed into the next image, in slices of the loop: others see the image before meanwhile."""
        committed = self._log.take_committed()
        if committed:
            replayer = self._replayer = self._replayer or BatchReplayer(self.image)
            for batch in committed:
                await run_in_slices(replayer.replay_steps(batch))
            if not replayer.is_in_transaction:
                image = await run_in_slices(replayer.finish_steps(committed[-1].next_offset, committed[-1].epoch))
                self._replayer = None
                self._publish(replayer.delta, image)
        self._progress.notify()

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        self._to_publish(delta, image)

    async def _load_snapshot(self, snapshot: SnapshotId) -> None:
        """Replace everything by what a snapshot holds: the log before its end is gone."""
        data = await self._fetch_snapshot(snapshot)
        if data is None:
            return
        where = f"the controllers' snapshot {snapshot.file_name}"
        replayer = BatchReplayer(empty_image(self._settings.cluster_id))
        is_whole = False
        batches = split_batches(data, where)
        # A large one takes its time, and heartbeats must go out meanwhile.
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await run_in_slices(replayer.replay_steps(batch))
            is_whole = _is_end(batch)
        if not is_whole:
            # Records that it lacks would count as deleted, and logs here be deleted with them.
            raise ProtocolError(f"{where} has {len(data)} bytes and no end")
        image = await run_in_slices(replayer.finish_steps(snapshot.end_offset, snapshot.epoch))
        delta = await asyncio.to_thread(_replacing, self.image, image)
        logger.info("%s loaded, %d bytes", where, len(data))
        self._replayer = None
        self._log.reset(snapshot)
        self._publish(delta, image)
        self._progress.notify()

    async def _fetch_snapshot(self, snapshot: SnapshotId) -> bytes | None:
        """The whole snapshot; None when it is gone, and another one takes its place."""
        assert self._connection is not None
        address, data = self._connection.address, bytearray()
        while True:
            answer = await self._connection.call(
                self._snapshot_request(snapshot, len(data)), self._settings.request_timeout_s
            )
            self._check(address, answer.error_code)
            partition = _snapshot_of(answer)
            if partition.error_code in _GONE or partition.error_code in _WHO_LEADS:
                return None
            self._check(address, partition.error_code)
            found = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            if found != snapshot or partition.position != len(data):
                raise ProtocolError(
                    f"FetchSnapshot of {snapshot.file_name} from {len(data)} on was answered with {found.file_name} "
                    f"from {partition.position} on"
                )
            data += partition.unaligned_records
            if len(data) >= partition.size:
                return bytes(data)
            if not partition.unaligned_records:
                raise ProtocolError(f"FetchSnapshot was answered with nothing at position {len(data)}")

    def _snapshot_request(self, snapshot: SnapshotId, position: int) -> m.FetchSnapshotRequest:
        settings = self._settings
        wanted = m.FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self._finder.epoch,
            snapshot_id=m.FetchSnapshotRequest.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
            position=position,
            replica_directory_id=settings.directory_id,
        )
        return m.FetchSnapshotRequest(
            cluster_id=settings.cluster_id,
            replica_id=settings.node_id,
            max_bytes=settings.snapshot_max_bytes,
            topics=[m.FetchSnapshotRequest.TopicSnapshot(name=_METADATA_TOPIC, partitions=[wanted])],
        )

    # ---- what the operator is told ---------------------------------------------------------------------------------

    def _tell_found(self, address: Address) -> None:
        leader = self._finder.leader
        found = f"controller {leader.id if leader is not None else '?'} at {_name(address)}"
        if self._was_told != found:
            self._was_told = found
            logger.info("metadata comes from %s, which leads the quorum in epoch %d", found, self._finder.epoch)

    def _tell_trouble(self, text: str) -> None:
        """Once until a leader is found again: then the others of a round say nothing new."""
        if self._was_told is not None:
            logger.warning("no metadata for the moment: %s", text)
            self._was_told = None
        else:
            logger.debug("no metadata: %s", text)


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _partition_of(answer: Any) -> Any:
    for topic in answer.responses:
        for partition in topic.partitions:
            if topic.topic_id == METADATA_TOPIC_ID and partition.partition_index == 0:
                return partition
    raise ProtocolError(f"the answer to Fetch says nothing of topic {uuid_to_text(METADATA_TOPIC_ID)}")


def _snapshot_of(answer: Any) -> Any:
    for topic in answer.topics:
        for partition in topic.partitions:
            if topic.name == _METADATA_TOPIC and partition.index == 0:
                return partition
    raise ProtocolError(f"the answer to FetchSnapshot says nothing of {_METADATA_TOPIC}")


def _is_end(batch: MetadataBatch) -> bool:
    """Whether a snapshot ends with this batch (KIP-630)."""
    last = batch.records[-1] if batch.records else None
    return isinstance(last, ControlRecord) and last.type == SNAPSHOT_FOOTER


def _replacing(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    delta = replacing_delta(old, new)
    # Made here, in a thread, and kept: publishers ask for it.
    assert delta.topics_changed is not None
    return delta
