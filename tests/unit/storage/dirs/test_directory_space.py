"""How much of a disk is kept from producers, and for how long."""

from __future__ import annotations

import pytest

from pybroker.storage.dirs.directory_space import DirectorySpace, Measured, reserve_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("setting", "total_bytes", "expected"),
    [
        (-1, 10 * GIB, 10 * GIB // 100),
        (-1, 100 * GIB, GIB),
        (-1, 10 << 40, GIB),
        (-1, 12 << 20, (12 << 20) // 100),
        (0, 10 * GIB, 0),
        (5 * GIB, 10 * GIB, 5 * GIB),
    ],
)
def test_the_reserve_is_what_was_set_or_a_small_part_of_the_disk(setting: int, total_bytes: int, expected: int) -> None:
    assert reserve_of(setting, total_bytes) == expected


def test_a_disk_is_low_until_half_as_much_more_than_the_reserve_is_free() -> None:
    space = DirectorySpace()
    seen = [(space.update(1000, Measured(10_000, free_bytes)), space.is_low) for free_bytes in FREE_BYTES]
    assert seen == [
        (False, False),
        (False, False),
        (True, True),
        (False, True),
        (False, True),
        (True, False),
        (False, False),
        (True, True),
    ]


FREE_BYTES = (5000, 1000, 999, 0, 1499, 1500, 1000, 999)


def test_without_a_reserve_no_disk_is_low() -> None:
    space = DirectorySpace()
    assert not space.update(0, Measured(10_000, 0))
    assert not space.is_low
