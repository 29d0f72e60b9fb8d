"""Control batches of transactions (KIP-98): the marker with which a coordinator ends one in a partition. Pure."""

from __future__ import annotations

import struct

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record

_KEY = struct.Struct(">hh")
_VALUE_VERSION = struct.Struct(">h")
_KEY_VERSION = 0
_MARKER_VERSION = 0
_ABORT = 0
_COMMIT = 1


def end_transaction_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool, timestamp_ms: int
) -> bytes:
    """The batch that commits or aborts a producer's transaction in the partition it is appended to. ProtocolError for
    values that do not fit their fields."""
    value = _VALUE_VERSION.pack(_MARKER_VERSION)
    value += m.EndTxnMarker(coordinator_epoch=coordinator_epoch).encode(_MARKER_VERSION)
    return record_batch.build(
        0,
        -1,
        [Record(_KEY.pack(_KEY_VERSION, _COMMIT if commit else _ABORT), value)],
        timestamp_ms=timestamp_ms,
        control=True,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
