"""The protocol's error code for a failed call into the data plane."""

from __future__ import annotations

from pybroker.native.errors import NativeError
from pybroker.protocol.errors import ErrorCode, KafkaError


def kafka_error(error: NativeError) -> KafkaError:
    """A Kafka error code as it is; an errno is KAFKA_STORAGE_ERROR, its words for the log only."""
    if error.code > 0:
        return KafkaError(ErrorCode(error.code), error.text)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.text)
