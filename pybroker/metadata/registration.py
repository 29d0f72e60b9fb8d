"""A broker's statement about itself when it registers (KIP-631, KIP-858). Pure values."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.metadata.image import Endpoint
from pybroker.values import Value

Placements = Mapping[tuple[bytes, int], bytes]
"""Ids of the log dirs that replicas of a broker lie in, by topic id and partition."""

NO_BROKER_EPOCH = -1


class Registration(Value):
    """`incarnation_id` is new for each process. `previous_broker_epoch` is that of the last life, -1 unless that came
    to an end in order: then the log may lack what others hold for in sync (KIP-966)."""

    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH
