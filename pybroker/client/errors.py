"""The errors between a command and a broker. Every text is written for the person at the terminal."""

from __future__ import annotations

from pybroker.protocol.errors import ErrorCode, is_retriable, known_code

_MEANINGS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic is there already",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable=false forbids it",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic: stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group's coordinator does not answer at the moment",
}


class ClientError(Exception):
    """Something did not work; the text says what, and where known what to do."""


class Unreachable(ClientError):
    """No connection could be made, or one was lost."""


class NotServed(ClientError):
    """The broker has no version of an API that this client speaks."""


class RequestError(ClientError):
    """A broker's answer was an error. `code` is Kafka's."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = known_code(code)
        name = self.code.name if self.code is not ErrorCode.UNKNOWN_SERVER_ERROR else f"error {code}"
        meaning = message or _MEANINGS.get(self.code)
        super().__init__(f"{what}: {meaning} ({name})" if meaning else f"{what}: {name}")

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return is_retriable(self.code)


def check(what: str, code: int, message: str | None = None) -> None:
    """RequestError unless `code` is 0."""
    if code:
        raise RequestError(what, code, message)
