"""The sweep of hostile traffic: what it covers, that a seed repeats it, and that its bombs are valid batches."""

from __future__ import annotations

import struct

import pytest

from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import request_class
from tests.harness.hostile.frames import SHAPES, bomb_batch, sweep

SERVED = {0: (9, 11), 3: (0, 4), 18: (0, 4)}
PRODUCE_SINCE = 3
ARRAYLESS = 18


def test_sweep_has_every_shape_of_every_version() -> None:
    planned = [name for name, _ in sweep(SERVED, 1)]
    wanted = [
        f"{request_class(key).__name__} {version} {shape.__name__.strip('_')}"
        for key, (oldest, newest) in SERVED.items()
        for version in range(oldest, newest + 1)
        for shape in SHAPES
    ]
    bombs = [name for name in planned if name.startswith("bomb")]
    assert sorted(planned) == sorted(wanted + bombs)
    assert len(bombs) == 4


def test_seed_repeats_the_sweep() -> None:
    small = [number for number, (name, _) in enumerate(sweep(SERVED, 5)) if "wide" not in name and "bomb" not in name]
    one, other, third = (sweep(SERVED, seed) for seed in (5, 5, 6))
    assert [one[n][1]() for n in small] == [other[n][1]() for n in small]
    assert [name for name, _ in one] != [name for name, _ in third]


def test_frames_announce_their_length_unless_they_are_meant_not_to() -> None:
    for name, make in sweep({0: (9, 9), ARRAYLESS: (0, 4)}, 1):
        if name.endswith(("ordinary", "wide", "long", "slow")):
            sent = b"".join(piece for _, piece in make().pieces)
            assert struct.unpack_from(">i", sent)[0] == len(sent) - 4, name


def test_bomb_is_a_valid_batch_that_unpacks_to_130_mib() -> None:
    batch = bomb_batch(4)
    assert len(batch) < 200_000
    with pytest.raises(ProtocolError):
        next(record_batch.parse(batch, max_decompressed_bytes=129 << 20))
    assert len(next(record_batch.parse(batch, max_decompressed_bytes=132 << 20)).records) == 100


def test_versions_that_are_told_and_not_served_are_left_out() -> None:
    names = {name.rsplit(" ", 1)[0] for name, _ in sweep({0: (0, 4)}, 1) if not name.startswith("bomb")}
    assert names == {f"ProduceRequest {version}" for version in range(PRODUCE_SINCE, 5)}
