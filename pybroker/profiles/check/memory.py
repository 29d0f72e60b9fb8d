"""Checks of memory, its settings under vm.*, limits, and the control group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pybroker.profiles.check.finding import Finding, Remedy, Status, sysctl, sysfs, words
from pybroker.profiles.machine import ControlGroup, Limits, Machine, Memory
from pybroker.profiles.sizes import format_bytes

_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_DIRTY_LEAST_BYTES = 256 << 20
_DIRTY_MOST_RATIO = 20
_EXPIRE_MOST_CENTISECS = 6000
_EXPIRE_CENTISECS, _WRITEBACK_CENTISECS = 3000, 500
_SWAPPINESS_MOST = 10
_OPEN_FILES_LEAST = 65_536
_OPEN_FILES = 1_048_576
_GROUP_MEMORY_LEAST_BYTES = 1 << 30
_GROUP_CPU_LEAST = 2.0


def check_memory(machine: Machine) -> Iterator[Finding]:
    """Memory, limits, control group."""
    yield _huge_pages(machine.memory)
    yield _dirty(machine.memory)
    yield _writeback(machine.memory)
    yield _swap(machine.memory)
    yield _open_files(machine.limits)
    yield _real_time(machine.limits)
    if machine.control_group.version > 0:
        yield _group_memory(machine.control_group)
        yield _group_cpu(machine.control_group)


def _huge_pages(memory: Memory) -> Finding:
    subject, found, wanted = "transparent huge pages", memory.transparent_huge_pages, words(("madvise", "never"))
    why = "huge pages behind small buffers make memory grow, and assembling them takes CPU time from the reactors"
    if found is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if found != "always":
        return Finding(subject, Status.OK, found, wanted, why)
    remedy = sysfs(_HUGE_PAGES, "madvise", found, "the boot option transparent_hugepage=madvise")
    return Finding(subject, Status.ADVICE, found, wanted, why, remedy)


def _dirty(memory: Memory) -> Finding:
    subject = "dirty pages"
    wanted = f"at least {format_bytes(_DIRTY_LEAST_BYTES)}, at most {_DIRTY_MOST_RATIO} % of memory"
    why = "at this bound writers wait for the disk: a low one is met all the time, a high one takes long to work off"
    if memory.dirty_ratio is None or memory.total_bytes is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    name, value = ("dirty_bytes", memory.dirty_bytes) if memory.dirty_bytes else ("dirty_ratio", memory.dirty_ratio)
    bound_bytes = memory.dirty_bytes or memory.total_bytes * memory.dirty_ratio // 100
    most_bytes = memory.total_bytes * _DIRTY_MOST_RATIO // 100
    found = f"{format_bytes(bound_bytes)} (vm.{name} = {value})"
    # On a small machine the one bound lies above the other.
    if min(_DIRTY_LEAST_BYTES, most_bytes) <= bound_bytes <= max(_DIRTY_LEAST_BYTES, most_bytes):
        return Finding(subject, Status.OK, found, wanted, why)
    is_low = bound_bytes < _DIRTY_LEAST_BYTES
    remedy = (
        sysctl("vm.dirty_bytes", _DIRTY_LEAST_BYTES, 0) if is_low else sysctl("vm.dirty_ratio", _DIRTY_MOST_RATIO, 0)
    )
    # The kernel takes the last of the two that was set, so undoing means setting the other again.
    remedy = replace(remedy, undo=f"sudo sysctl -w vm.{name}={value}")
    return Finding(subject, Status.ADVICE, found, wanted, why, remedy)


def _writeback(memory: Memory) -> Finding:
    subject, wanted = "writeback", f"every few seconds, of pages up to {_EXPIRE_MOST_CENTISECS // 100} s old"
    why = "what no sync asks for reaches the disk by this alone, and a power cut takes what it has not reached"
    every, age = memory.dirty_writeback_centisecs, memory.dirty_expire_centisecs
    if every is None or age is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if every == 0:
        remedy = sysctl("vm.dirty_writeback_centisecs", _WRITEBACK_CENTISECS, every)
        return Finding(subject, Status.WARNING, "off", wanted, why, remedy)
    found = f"every {every / 100:g} s, of pages from {age / 100:g} s of age"
    if age <= _EXPIRE_MOST_CENTISECS:
        return Finding(subject, Status.OK, found, wanted, why)
    remedy = sysctl("vm.dirty_expire_centisecs", _EXPIRE_CENTISECS, age)
    return Finding(subject, Status.ADVICE, found, wanted, why, remedy)


def _swap(memory: Memory) -> Finding:
    subject, wanted = "swap", f"none, or vm.swappiness up to {_SWAPPINESS_MOST}"
    why = "the page cache pushes out memory that was idle for a while, and who then needs it waits for the disk"
    if memory.swap_bytes is None or memory.swappiness is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if memory.swap_bytes == 0:
        return Finding(subject, Status.OK, "none", wanted, why)
    found = f"{format_bytes(memory.swap_bytes)}, vm.swappiness = {memory.swappiness}"
    if memory.swappiness <= _SWAPPINESS_MOST:
        return Finding(subject, Status.OK, found, wanted, why)
    return Finding(subject, Status.ADVICE, found, wanted, why, sysctl("vm.swappiness", 1, memory.swappiness))


def _open_files(limits: Limits) -> Finding:
    subject, wanted, hard = "open files", f"{_OPEN_FILES_LEAST:,} or more", limits.open_files_hard
    why = "each connection takes one, each active segment some; the broker raises its limit up to the hard one"
    if hard is None and limits.open_files is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if hard is None or hard >= _OPEN_FILES_LEAST:
        return Finding(subject, Status.OK, "unlimited" if hard is None else f"{hard:,}", wanted, why)
    remedy = Remedy(
        f"sudo prlimit --pid $$ --nofile={_OPEN_FILES}    # in the shell that then starts the broker",
        f"prlimit --pid $$ --nofile={hard}",
        f"LimitNOFILE={_OPEN_FILES} in the unit, or `* hard nofile {_OPEN_FILES}` in /etc/security/limits.d/",
    )
    return Finding(subject, Status.ADVICE, f"{hard:,}", wanted, why, remedy)


def _real_time(limits: Limits) -> Finding:
    subject, wanted = "real-time priority", "1 or more is allowed"
    why = "beside huge requests, or many that Python serves, a reactor goes before other threads if it may"
    if limits.real_time is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if limits.real_time:
        return Finding(subject, Status.OK, wanted, wanted, why)
    remedy = Remedy(
        "sudo prlimit --pid $$ --rtprio=1    # in the shell that then starts the broker",
        "prlimit --pid $$ --rtprio=0",
        "LimitRTPRIO=1 and no RestrictRealtime= in the unit, or `* - rtprio 1` in /etc/security/limits.d/",
    )
    return Finding(subject, Status.ADVICE, "none is allowed", wanted, why, remedy)


def _group_memory(group: ControlGroup) -> Finding:
    subject, wanted = "control group: memory", f"{format_bytes(_GROUP_MEMORY_LEAST_BYTES)} or more"
    why = "the page cache counts: with little memory, what was just produced is read from the disk again"
    most, high = group.memory_max_bytes, group.memory_high_bytes
    if most is None:
        return Finding(subject, Status.OK, "no bound", wanted, why)
    found = format_bytes(most) + (
        f", slowed down from {format_bytes(high)}" if high is not None and high < most else ""
    )
    if most >= _GROUP_MEMORY_LEAST_BYTES:
        return Finding(subject, Status.OK, found, wanted, why)
    fix = "give the container or unit more: docker update --memory 2g --memory-swap 2g …, or MemoryMax=2G"
    return Finding(subject, Status.ADVICE, found, wanted, why, Remedy(fix, f"the same with {most}"))


def _group_cpu(group: ControlGroup) -> Finding:
    subject, wanted = "control group: CPU", f"no bound, or {_GROUP_CPU_LEAST:g} CPUs or more"
    why = "a group that has used up its time stands still until the next period begins, mostly 100 ms"
    if group.cpu_quota is None:
        return Finding(subject, Status.OK, "no bound", wanted, why)
    found = f"{group.cpu_quota:g} CPUs"
    if group.cpu_quota >= _GROUP_CPU_LEAST:
        return Finding(subject, Status.OK, found, wanted, why)
    fix = "give the container or unit more: docker update --cpus 2 …, or CPUQuota=200%"
    return Finding(subject, Status.ADVICE, found, wanted, why, Remedy(fix, f"the same with {group.cpu_quota:g}"))
