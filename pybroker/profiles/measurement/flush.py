"""Whether what was flushed would survive a loss of power: what facts and times allow to conclude, and no more. Pure.

A flush is a command of its own that empties a device's volatile cache. Nobody can see from here whether a device obeys.
The visible signs are that no flush is sent, or that the answer comes sooner than the medium could have given it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.profiles.machine import Host, Storage
from pybroker.profiles.matching import FLASH, ROTATING, medium_of_disk
from pybroker.profiles.measurement.result import Conclusion, Figures
from pybroker.values import Value

DROPPED = "dropped"
"""Nothing is flushed: the file system does not ask for it."""
TOO_FAST = "too-fast"
"""The times do not go with the medium."""
NOT_SENT = "not-sent"
"""The device says that it has no volatile cache, so the kernel flushes nothing."""
PLAUSIBLE = "plausible"
"""Flushes take time; nothing speaks against them."""
UNKNOWN = "unknown"

SUSPICIOUS = (DROPPED, TOO_FAST)
"""What a broker that promises durability warns of."""

_IN_MEMORY = ("tmpfs", "ramfs")
_DROPPING_OPTIONS = ("nobarrier", "barrier=0", "volatile")
#: A flush that reaches a device is a round trip, as a write of 4 KiB is; one that does not returns at once.
_ROUND_TRIP_SHARE = 0.15
#: The next place comes by once a turn: 4 ms at 15,000 a minute.
_TURN_US = 1_000.0


class FlushTimes(Value):
    """Medians, in µs: of a 4 KiB write past the page cache, of the same when it is durable on return, of a sync."""

    write_us: float
    durable_us: float
    sync_us: float


def flush_times(results: Mapping[str, Figures]) -> FlushTimes | None:
    """The times that flushes are judged by; None where writes past the page cache were refused."""
    names = ("write.direct.4KiB", "write.durable.4KiB", "sync.4KiB")
    if not all(name in results for name in names):
        return None
    return FlushTimes(*(results[name].p50_us for name in names))


def judge_flush(storage: Storage | None, host: Host, times: FlushTimes | None, medium: str) -> Conclusion:
    """The verdict on flushes of the storage below a log dir. `medium`: as measured, or `unknown`."""
    if storage is not None and storage.file_system in _IN_MEMORY:
        return Conclusion(DROPPED, f"{storage.file_system} keeps files in memory: a loss of power takes all of them")
    dropping = [] if storage is None else [each for each in storage.options if each in _DROPPING_OPTIONS]
    if dropping:
        mount = "the file system" if storage is None else storage.mount_point
        return Conclusion(
            DROPPED, f"{mount} is mounted with {dropping[0]}, so syncs do not empty the disk's cache; mount it without"
        )
    if times is None:
        return Conclusion(UNKNOWN, "writes past the page cache are refused here, so flushes cannot be told apart")
    return _judge_times(storage, host, times, medium)


def _judge_times(storage: Storage | None, host: Host, times: FlushTimes, medium: str) -> Conclusion:
    caches = {disk.write_cache for disk in storage.disks} if storage is not None else set()
    media = {medium_of_disk(disk) for disk in storage.disks} if storage is not None else set()
    took = f"a durable write of 4 KiB takes {times.durable_us:.0f} µs, an ordinary one {times.write_us:.0f} µs"
    turns = medium == ROTATING or (medium != FLASH and ROTATING in media and host.hypervisor is None)
    if turns and times.durable_us < _TURN_US:
        return Conclusion(
            TOO_FAST,
            f"{took}, but a disk that turns needs milliseconds: a cache answers in its place. Unless a battery or "
            "capacitor keeps that cache, as in RAID controllers, a loss of power takes what is in it",
        )
    if caches == {"write through"}:
        return Conclusion(
            NOT_SENT,
            "the kernel takes the disk for one without a volatile cache (write_cache is 'write through') and sends it "
            f"no flushes; {took}. That is right if the disk, or the host of a virtual one, really has none",
        )
    if times.sync_us < _ROUND_TRIP_SHARE * times.write_us:
        return Conclusion(
            TOO_FAST,
            f"a sync after a write returns in {times.sync_us:.1f} µs, where the way to the device and back takes "
            f"{times.write_us:.0f} µs: it seems that nothing is flushed, so a loss of power may take what was synced",
        )
    if host.hypervisor is not None:
        return Conclusion(
            PLAUSIBLE,
            f"{took}: flushes leave this virtual machine. What its host does with them cannot be seen from inside",
        )
    return Conclusion(
        PLAUSIBLE, f"{took}, a sync alone {times.sync_us:.0f} µs: nothing speaks against flushes that are real"
    )
