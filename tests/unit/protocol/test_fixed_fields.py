"""The fixed-width ends of messages are where the codecs put them."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.protocol import fixed_fields
from pybroker.protocol.loader import record_classes
from tests.harness.random_messages import RandomMessages

KINDS = [("group", "coordinator-key"), ("group", "coordinator-value"), ("metadata", "metadata")]


@pytest.mark.parametrize(("namespace", "kind"), KINDS)
def test_messages_begin_and_end_with_their_fixed_fields(namespace: str, kind: str) -> None:
    compared_count = 0
    for cls in record_classes(namespace, kind).values():
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            message: Any = RandomMessages(version).message(cls.__name__, version)
            data = message.encode(version)
            head = fixed_fields.leading(cls.__name__, version)
            tail = fixed_fields.trailing(cls.__name__, version)
            assert data.startswith(head.layout.pack(*(getattr(message, name) for name in head.attributes)))
            assert data.endswith(tail.layout.pack(*(getattr(message, name) for name in tail.attributes)))
            compared_count += len(head.attributes) + len(tail.attributes)
    assert compared_count > 0


def test_how_far_they_reach() -> None:
    head = fixed_fields.leading("OffsetCommitValue", 4)
    assert (head.attributes, head.layout.size) == (("offset", "leader_epoch"), 12)
    assert fixed_fields.leading("OffsetCommitValue", 1).attributes == ("offset",)
    assert fixed_fields.trailing("OffsetCommitValue", 1).attributes == ("commit_timestamp", "expire_timestamp")
    assert fixed_fields.trailing("OffsetCommitValue", 4).attributes == (), "tagged fields end it"
    assert fixed_fields.leading("OffsetCommitKey", 0).attributes == ()
