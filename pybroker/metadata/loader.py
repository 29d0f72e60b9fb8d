"""From batches to images: the one replay path, with metadata transactions (KIP-868), and the publishers of what came
out.

Pure, on one thread. Records between BeginTransactionRecord and EndTransactionRecord count only when the end arrives,
and not at all when AbortTransactionRecord does. Fails with `MetadataError`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from typing import Protocol

from pybroker.metadata import features
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import RESOURCE_TOPIC, MetadataImage, Provenance
from pybroker.metadata.records import ControlRecord, MetadataBatch, VersionedRecord
from pybroker.metadata.snapshot import image_records, quorum_records
from pybroker.protocol import messages as m
from pybroker.turns import run_at_once

logger = logging.getLogger(__name__)

_BEGIN, _END, _ABORT = "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"


class MetadataPublisher(Protocol):
    """Turns durable metadata changes into effects: calls to the data plane, to coordinators, to caches."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is `delta` applied to the image of the call before. `image.provenance` has offset and epoch.

        Called on the asyncio loop, in log order, after the records are durable and before any response that depends on
        them. The first call has everything there is. Must not raise and must not block.
        """
        ...


class MetadataApplier(MetadataPublisher, Protocol):
    """A publisher whose effects take their time."""

    def in_effect(self, end_offset: int) -> int:
        """The end offset of the metadata that is in effect. `end_offset` is that of all there is: no less than that of
        the image that was published last, as what needs no effect is not published."""
        ...


class BatchReplayer:
    """Replays batches in log order on top of `base`."""

    def __init__(self, base: MetadataImage) -> None:
        self.delta = MetadataDelta(base)
        self.time_ms = base.provenance.time_ms
        self._transaction: list[VersionedRecord] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction was begun and neither ended nor aborted."""
        return self._transaction is not None

    def replay(self, batch: MetadataBatch) -> None:
        """Replay one batch. MetadataError names the offset."""
        run_at_once(self.replay_steps(batch))

    def replay_steps(self, batch: MetadataBatch) -> Generator[None, None, None]:
        """As `replay`; yields where it may be interrupted. The delta is of no use to others meanwhile."""
        for index, record in enumerate(batch.records):
            yield
            try:
                if isinstance(record, ControlRecord):
                    self._replay_control(record)
                else:
                    self._replay(record)
            except MetadataError as error:
                raise MetadataError(f"metadata record at offset {batch.base_offset + index}: {error}") from error
        self.time_ms = max(self.time_ms, batch.time_ms)

    def _replay_control(self, record: ControlRecord) -> None:
        self.delta.replay_control(record.record)

    def _replay(self, record: VersionedRecord) -> None:
        kind = type(record.record).__name__
        if kind == _BEGIN:
            if self._transaction is not None:
                raise MetadataError("a transaction begins within another")
            self._transaction = []
        elif kind in (_END, _ABORT):
            if self._transaction is None:
                raise MetadataError(f"{kind} outside of a transaction")
            held_back, self._transaction = self._transaction, None
            if kind == _END:
                for each in held_back:
                    self.delta.replay(*each)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self.delta.replay(*record)

    def finish(self, end_offset: int, epoch: int) -> MetadataImage:
        """The image after all batches."""
        return run_at_once(self.finish_steps(end_offset, epoch))

    def finish_steps(self, end_offset: int, epoch: int) -> Generator[None, None, MetadataImage]:
        """As `finish`; yields where it may be interrupted."""
        return self.delta.apply_steps(Provenance(end_offset, epoch, self.time_ms))


def load(base: MetadataImage, batches: Iterable[MetadataBatch]) -> BatchReplayer:
    """Replay everything a log has to offer at start."""
    replayer = BatchReplayer(base)
    for batch in batches:
        replayer.replay(batch)
    return replayer


def warn_of_unserved(image: MetadataImage) -> list[str]:
    """Name, once per start, what the log holds that this broker keeps but does not serve. Returns the lines logged."""
    lines = [
        f"the cluster has finalised {name}={level}, which this broker does not serve: its APIs are not offered"
        for name, level in sorted(features.unserved(image.feature_levels).items())
    ]
    kinds = sorted({str(key[0]) for key in image.retained})
    lines += [f"the metadata log holds {kind}s; they are kept, but have no effect on this broker" for kind in kinds]
    if image.scram_credentials:
        lines.append("the metadata log holds SCRAM credentials; no listener of this broker asks for them")
    for line in lines:
        logger.warning("%s", line)
    return lines


def full_delta(image: MetadataImage) -> MetadataDelta:
    """A delta that makes `image` from nothing: what a publisher gets that was not there from the beginning."""
    delta = MetadataDelta(empty_image(image.cluster_id))
    for record, version in image_records(image):
        delta.replay(record, version)
    for control in quorum_records(image.quorum):
        delta.replay_control(control.record)
    return delta


def replacing_delta(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """A delta that names, for publishers who have `old`, all that may be different in `new`: every topic, and what is
    there no more."""
    delta = MetadataDelta(old)
    for topic_id in old.topics.by_id:
        delta.replay(m.RemoveTopicRecord(topic_id=topic_id), 0)
    for (kind, name), values in old.configs.items():
        for key in values if kind != RESOURCE_TOPIC else ():
            delta.replay(m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None), 0)
    for entity, quotas in old.client_quotas.items():
        part = m.ClientQuotaRecord.EntityData
        for key in quotas:
            named = [part(entity_type=kind, entity_name=name) for kind, name in entity]
            delta.replay(m.ClientQuotaRecord(entity=named, key=key, remove=True), 0)
    for mechanism, user in old.scram_credentials:
        delta.replay(m.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism), 0)
    for broker in old.cluster.brokers.values():
        delta.replay(m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch), 0)
    for record, version in image_records(new):
        delta.replay(record, version)
    return delta
