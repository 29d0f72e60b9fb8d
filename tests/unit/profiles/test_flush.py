"""What is concluded of flushes and of the medium, from captured machines and times."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import unpack

from pybroker.profiles.facts import read_machine
from pybroker.profiles.machine import Host, Storage
from pybroker.profiles.measurement import flush
from pybroker.profiles.measurement.flush import FlushTimes, judge_flush
from pybroker.profiles.measurement.medium import judge_medium

BARE = Host(None, False, None, None)
VIRTUAL = Host("kvm", False, None, None)
USUAL = FlushTimes(write_us=15.0, durable_us=400.0, sync_us=380.0)


@pytest.fixture
def nvme(tmp_path: Path) -> Storage:
    return read_machine([Path("/var/lib/kafka")], unpack("nvme", tmp_path)).storage[0]


@pytest.fixture
def hdd(tmp_path: Path) -> Storage:
    """Mounted with nobarrier."""
    return read_machine([Path("/data/kafka")], unpack("hdd", tmp_path)).storage[0]


def with_cache(storage: Storage, cache: str) -> Storage:
    return storage.replace(disks=tuple(disk.replace(write_cache=cache) for disk in storage.disks))


def test_nothing_speaks_against_a_flush_that_takes_time(nvme: Storage) -> None:
    found = judge_flush(nvme, BARE, USUAL, "flash")
    assert found.name == flush.PLAUSIBLE
    assert "a durable write of 4 KiB takes 400 µs, an ordinary one 15 µs, a sync alone 380 µs" in found.why


def test_a_guest_cannot_see_what_the_host_does(nvme: Storage) -> None:
    found = judge_flush(nvme, VIRTUAL, USUAL, "flash")
    assert found.name == flush.PLAUSIBLE
    assert "cannot be seen from inside" in found.why


def test_a_sync_that_never_left_is_too_fast(nvme: Storage) -> None:
    for host in (BARE, VIRTUAL):
        found = judge_flush(nvme, host, FlushTimes(60.0, 61.0, 1.2), "flash")
        assert found.name == flush.TOO_FAST
        assert "returns in 1.2 µs" in found.why


def test_a_drive_that_keeps_its_cache_alive_is_not_accused(nvme: Storage) -> None:
    assert judge_flush(nvme, BARE, FlushTimes(12.0, 20.0, 7.0), "flash").name == flush.PLAUSIBLE


def test_without_a_volatile_cache_nothing_is_sent(nvme: Storage) -> None:
    found = judge_flush(with_cache(nvme, "write through"), BARE, FlushTimes(12.0, 12.2, 0.8), "flash")
    assert found.name == flush.NOT_SENT
    assert found.name not in flush.SUSPICIOUS


def test_a_turning_disk_cannot_be_that_fast(hdd: Storage) -> None:
    plain = hdd.replace(options=("rw",))
    fast = FlushTimes(60.0, 150.0, 90.0)
    assert judge_flush(plain, BARE, fast, "rotating").name == flush.TOO_FAST
    assert judge_flush(plain, BARE, fast, "unknown").name == flush.TOO_FAST, "as the kernel says"
    assert judge_flush(plain, VIRTUAL, fast, "unknown").name == flush.PLAUSIBLE, (
        "what a guest's kernel says is no proof"
    )
    assert judge_flush(plain, BARE, fast, "flash").name == flush.PLAUSIBLE, "a measurement outranks the kernel"
    assert judge_flush(plain, BARE, FlushTimes(60.0, 8_000.0, 8_100.0), "rotating").name == flush.PLAUSIBLE
    assert judge_flush(with_cache(plain, "write through"), BARE, fast, "rotating").name == flush.TOO_FAST


def test_a_mount_without_barriers_flushes_nothing(hdd: Storage) -> None:
    found = judge_flush(hdd, BARE, FlushTimes(60.0, 9_000.0, 9_000.0), "rotating")
    assert found.name == flush.DROPPED
    assert "/data is mounted with nobarrier" in found.why


@pytest.mark.parametrize("file_system", ["tmpfs", "ramfs"])
def test_memory_is_no_disk(nvme: Storage, file_system: str) -> None:
    found = judge_flush(nvme.replace(file_system=file_system, disks=()), BARE, USUAL, "unknown")
    assert found.name == flush.DROPPED


def test_an_overlay_that_is_volatile(nvme: Storage) -> None:
    assert judge_flush(nvme.replace(options=("rw", "volatile")), BARE, USUAL, "flash").name == flush.DROPPED


def test_without_times_and_without_facts() -> None:
    assert judge_flush(None, BARE, None, "unknown").name == flush.UNKNOWN
    assert judge_flush(None, BARE, USUAL, "unknown").name == flush.PLAUSIBLE
    assert judge_flush(None, BARE, FlushTimes(60.0, 60.0, 1.0), "unknown").name == flush.TOO_FAST


@pytest.mark.parametrize(
    ("p50_us", "region_mib", "name"),
    [
        (54.0, 1024, "flash"),
        (54.0, 256, "unknown"),
        (9_000.0, 1024, "rotating"),
        (9_000.0, 16, "rotating"),
        (1_200.0, 1024, "unknown"),
        (None, 1024, "unknown"),
    ],
)
def test_the_medium(p50_us: float | None, region_mib: int, name: str) -> None:
    assert judge_medium(p50_us, region_mib << 20).name == name
