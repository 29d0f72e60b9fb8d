"""Errors of the protocol: Kafka's codes, and the exceptions that carry them."""

from __future__ import annotations

from pybroker.protocol.error_codes import RETRIABLE, ErrorCode

__all__ = ["ErrorCode", "KafkaError", "ProtocolError", "VersionNotTaken", "code_name", "is_retriable", "known_code"]


class ProtocolError(ValueError):
    """Bytes that are no valid message, or a message that a version cannot express."""


class KafkaError(Exception):
    """An outcome that is answered with a Kafka error code; the text goes to the client where the response has room for
    it.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class VersionNotTaken(Exception):
    """The active controller does not take a request in the version that the client chose. The client asks for the
    versions again when its connection is closed."""


def is_retriable(code: ErrorCode) -> bool:
    """Whether Kafka's clients try again on this code without being told to."""
    return code in RETRIABLE


def known_code(code: int) -> ErrorCode:
    """The code that another node has answered. As in Kafka, UNKNOWN_SERVER_ERROR for one of a newer version."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def code_name(code: int) -> str:
    """Kafka's name of a code; also for one that another node sends and this version does not know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
