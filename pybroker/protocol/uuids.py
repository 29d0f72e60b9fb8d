"""Kafka's uuids: 16 big-endian bytes, written as base64url without padding."""

from __future__ import annotations

import base64
import binascii
import uuid

ZERO_UUID = bytes(16)
ONE_UUID = bytes(15) + b"\x01"
METADATA_TOPIC_ID = ONE_UUID

# Directory ids with a meaning of their own (KIP-858).
MIGRATING_DIR = ZERO_UUID
UNASSIGNED_DIR = ONE_UUID
LOST_DIR = bytes(15) + b"\x02"
_RESERVED_PREFIX = bytes(15)
_RESERVED_COUNT = 100


def uuid_to_text(value: bytes) -> str:
    """22 characters for 16 bytes; ValueError for another length."""
    if len(value) != 16:
        raise ValueError(f"a uuid is 16 bytes, not {len(value)}")
    return base64.urlsafe_b64encode(value)[:22].decode()


def uuid_from_text(text: str) -> bytes:
    """16 bytes from Kafka's text form; ValueError for anything else."""
    try:
        # Python's decoder takes the plain alphabet beside the one asked for; Kafka's does not.
        is_plausible = len(text) == 22 and not {"+", "/"} & set(text)
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True) if is_plausible else b""
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a uuid in base64url: {error}") from error
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a uuid: 22 base64url characters are expected")
    return value


def is_reserved(value: bytes) -> bool:
    """Whether it stands for something else than a topic or a directory: the first 100 do."""
    return value[:15] == _RESERVED_PREFIX and value[15] < _RESERVED_COUNT


def random_uuid() -> bytes:
    """A random (version 4) uuid that Kafka accepts: not a reserved one, and its text does not begin with a dash.

    A leading dash would be taken for an option by command line tools.
    """
    while True:
        value = uuid.uuid4().bytes
        if not is_reserved(value) and not uuid_to_text(value).startswith("-"):
            return value
