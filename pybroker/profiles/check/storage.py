"""Checks of what the log dirs lie on: file system, mount, and the disks beneath."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pybroker.profiles.check.finding import Finding, Remedy, Status, sysfs, words
from pybroker.profiles.machine import BlockDevice, IoLimit, Machine, Storage
from pybroker.profiles.matching import ROTATING, medium_of_disk
from pybroker.profiles.sizes import format_bytes

_GOOD_FILE_SYSTEMS = ("ext4", "xfs")
_FILE_SYSTEM = "the broker keeps its promises by what a file system does with a sync"
_COPYING = (Status.ADVICE, "copying on write, it writes and syncs more than was appended; nobody has measured it")
_REMOTE = (Status.WARNING, "a sync means what the other side makes of it, and errors may come late")
_BARE = (Status.WARNING, "without a journal, a power cut may cost whole files")
_MEMORY = (Status.WARNING, "it is memory: nothing survives a restart of the machine")
#: The fault of a file system, by its name or the part of its name before the dot.
_FAULTS = {
    **dict.fromkeys(("btrfs", "zfs", "bcachefs", "f2fs"), _COPYING),
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse", "fuseblk"), _REMOTE),
    **dict.fromkeys(("ext2", "vfat", "exfat", "msdos"), _BARE),
    **dict.fromkeys(("tmpfs", "ramfs"), _MEMORY),
    "overlay": (Status.WARNING, "a container's own layer goes with the container; put the log dir on a volume"),
}
_NO_BARRIER = "a sync no longer reaches the medium, and a power cut takes what was promised"
#: Mount options that are wrong, what instead, and why.
_OPTIONS = {
    "ro": ("rw", Status.WARNING, "nothing can be written"),
    "nobarrier": ("barrier", Status.WARNING, _NO_BARRIER),
    "barrier=0": ("barrier=1", Status.WARNING, _NO_BARRIER),
    "sync": ("async", Status.ADVICE, "every write waits for the disk; pybroker.durability=acks syncs many at once"),
    "dirsync": ("async", Status.ADVICE, "every change of a directory waits for the disk"),
    "strictatime": ("noatime", Status.ADVICE, "every read writes the time it was made at"),
    "data=journal": ("data=ordered", Status.ADVICE, "every byte is written twice"),
}
#: Schedulers that do, and why others do not.
_NVME = (("none", "mq-deadline", "kyber"), "the drive orders requests by itself, and bfq costs CPU for each")
_ROTATES = (("mq-deadline", "bfq"), "others do not know the idle priority that background reads and writes have")
_OTHER = (("mq-deadline", "none", "kyber"), "bfq costs CPU for each request; mq-deadline knows idle priority as well")


def check_storage(machine: Machine, measured_medium: str | None) -> Iterator[Finding]:
    """`measured_medium` outranks what the disks say of themselves."""
    for storage in {each.mount_point: each for each in machine.storage}.values():
        yield _file_system(storage)
        yield from _mount(storage)
        if storage.device is None and _FAULTS.get(storage.file_system) in (None, _COPYING):
            found = f"{storage.source}, which /sys does not show"
            why = "what the disk is, and how it is set up, cannot be seen from here: look on the host"
            yield Finding(f"disk of {storage.mount_point}", Status.UNKNOWN, found, "known", why)
    for disk in {disk.name: disk for storage in machine.storage for disk in storage.disks}.values():
        yield _scheduler(disk, measured_medium or medium_of_disk(disk))
        yield _write_cache(disk)
        yield from (_io_limit(disk, limit) for limit in machine.control_group.io if limit.device == disk.number)


def _file_system(storage: Storage) -> Finding:
    subject, found, wanted = f"file system of {storage.mount_point}", storage.file_system, words(_GOOD_FILE_SYSTEMS)
    if found in _GOOD_FILE_SYSTEMS:
        return Finding(subject, Status.OK, found, wanted, _FILE_SYSTEM)
    fault = _FAULTS.get(found, _FAULTS.get(found.partition(".")[0]))
    if fault is None:
        return Finding(subject, Status.UNKNOWN, found, wanted, "nobody has run a broker on this one yet")
    remedy = None
    if found == "btrfs":
        path = shlex.quote(storage.path)
        fix = f"chattr +C {path}    # while it is empty: files made in it later are written in place"
        remedy = Remedy(fix, f"chattr -C {path}", needs_root=False)
    return Finding(subject, fault[0], found, wanted, fault[1], remedy)


def _mount(storage: Storage) -> Iterator[Finding]:
    subject = f"mount of {storage.mount_point}"
    bad = [option for option in storage.options if option in _OPTIONS]
    if not {"noatime", "relatime"} & set(storage.options):
        bad.append("strictatime")  # the kernel names it by naming none
    if not bad:
        shown = ",".join(option for option in storage.options if option in ("rw", "noatime", "relatime", "lazytime"))
        why = "other options make each read a write, or take away what a sync promises"
        yield Finding(subject, Status.OK, shown or "defaults", "noatime or relatime", why)
    for option in bad:
        better, status, why = _OPTIONS[option]
        keep = f"the options of {storage.mount_point} in /etc/fstab"
        remedy = Remedy(_mounting(storage, better), _mounting(storage, option), keep)
        yield Finding(subject, status, option, better, why, remedy)


def _mounting(storage: Storage, option: str) -> str:
    place = shlex.quote(storage.mount_point)
    if option.startswith("data="):  # ext4 changes that only while nobody uses it
        return f"sudo umount {place} && sudo mount -o {option} {shlex.quote(storage.source)} {place}"
    return f"sudo mount -o remount,{option} {place}"


def _scheduler(disk: BlockDevice, medium: str) -> Finding:
    subject = f"scheduler of {disk.name}"
    accepted, why = _NVME if disk.transport == "nvme" else _ROTATES if medium == ROTATING else _OTHER
    if disk.scheduler is None:
        return Finding(subject, Status.UNKNOWN, "unknown", words(accepted), why)
    if disk.scheduler in accepted:
        return Finding(subject, Status.OK, disk.scheduler, words(accepted), why)
    better = next((name for name in accepted if name in disk.schedulers), None)
    if better is None:
        return Finding(subject, Status.ADVICE, f"{disk.scheduler}, and no other", words(accepted), why)
    rule = f'ACTION=="add|change", KERNEL=="{disk.name}", ATTR{{queue/scheduler}}="{better}"'
    keep = f"the line `{rule}` in /etc/udev/rules.d/60-pybroker.rules"
    remedy = sysfs(f"/sys/block/{disk.name}/queue/scheduler", better, disk.scheduler, keep)
    return Finding(subject, Status.ADVICE, disk.scheduler, words(accepted), why, remedy)


def _write_cache(disk: BlockDevice) -> Finding:
    """No value is wanted: what a flush costs, and whether it is one, only measuring tells."""
    subject, found, wanted = f"write cache of {disk.name}", disk.write_cache, "any"
    if found is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, "whether a sync has a cache to flush")
    if found != "write back":
        why = "the disk says that it keeps nothing a power cut could take: a sync flushes nothing"
    elif disk.fua:
        found, why = f"{found}, FUA", "a sync flushes the cache; a single write can go around it"
    else:
        why = "a synced write is a write and a flush: `pybroker profile measure` tells what they cost"
    return Finding(subject, Status.OK, found, wanted, why)


def _io_limit(disk: BlockDevice, limit: IoLimit) -> Finding:
    rates = {"reads": limit.read_bytes_per_second, "writes": limit.write_bytes_per_second}
    counts = {"reads": limit.reads_per_second, "writes": limit.writes_per_second}
    found = [f"{name} {format_bytes(value)}/s" for name, value in rates.items() if value is not None]
    found += [f"{value:,} {name}/s" for name, value in counts.items() if value is not None]
    why = "what the broker gets, and what is measured, is the group's share and not what the disk can do"
    fix = "take the bound off the container or unit: docker run without --device-read-bps, no IOReadBandwidthMax="
    remedy = Remedy(fix, "set it again")
    return Finding(f"control group: {disk.name}", Status.ADVICE, ", ".join(found), "no bound", why, remedy)
