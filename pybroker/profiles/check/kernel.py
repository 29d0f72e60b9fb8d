"""Checks of the kernel and the CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.profiles.check.finding import Finding, Remedy, Status, sysctl, sysfs, words
from pybroker.profiles.check.probe import Probe
from pybroker.profiles.machine import Cpu, Kernel, Limits, Machine

_WANTED_KERNEL = (6, 5)
_IO_URING_KERNEL = (6, 1)
#: Read without a system call.
_FAST_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page")
_SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "userspace")
_CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: In what the data plane says where the kernel charges rings to it, which some kernels do.
_LOCKED_MEMORY = "ulimit -l"
_OF_A_FILTER = Remedy(
    "let the seccomp filter of the container or unit pass io_uring_setup, io_uring_enter and io_uring_register",
    "let it refuse them again",
)
_GOVERNORS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"


def check_kernel(machine: Machine, probe: Probe | None) -> Iterator[Finding]:
    """`probe` is what the kernel really does, where it runs here."""
    yield _version(machine.kernel)
    yield _io_uring(machine, probe)
    if probe is not None:
        yield from (_direct(path, refusal) for path, refusal in probe.direct.items())
    yield _clock(machine.kernel)
    yield _governor(machine.cpu)
    yield _crc32c(machine.cpu)
    if machine.cpu.numa_node_count > 1:
        yield _numa(machine.cpu)


def _version(kernel: Kernel) -> Finding:
    status = Status.OK if kernel.version >= _WANTED_KERNEL else Status.ADVICE
    return Finding(
        "kernel",
        Status.UNKNOWN if kernel.version == (0, 0) else status,
        kernel.release or "unknown",
        "{}.{} or newer".format(*_WANTED_KERNEL),
        "6.1 has the io_uring that the broker uses, 6.5 cachestat, which tells what is in memory before it is read",
    )


def _io_uring(machine: Machine, probe: Probe | None) -> Finding:
    kernel, wanted = machine.kernel, "allowed"
    why = "without io_uring the broker serves by epoll, with more system calls where many connections are busy"
    refusal = None if probe is None else probe.io_uring
    if probe is not None and refusal is None:
        return Finding("io_uring", Status.OK, wanted, wanted, why)
    if kernel.io_uring_disabled in (1, 2):
        found = f"kernel.io_uring_disabled is {kernel.io_uring_disabled}"
        remedy = sysctl("kernel.io_uring_disabled", 0, kernel.io_uring_disabled)
        return Finding("io_uring", Status.ADVICE, found, wanted, why, remedy)
    if kernel.version < _IO_URING_KERNEL:
        found, status = (
            f"that of Linux {kernel.release or 'unknown'}",
            Status.ADVICE if kernel.release else Status.UNKNOWN,
        )
        return Finding("io_uring", status, found, "that of Linux {}.{}".format(*_IO_URING_KERNEL), why)
    if refusal is not None:
        remedy = _of_locked_memory(machine.limits) if _LOCKED_MEMORY in refusal else _OF_A_FILTER
        return Finding("io_uring", Status.ADVICE, refusal, wanted, why, remedy)
    return Finding("io_uring", Status.OK, wanted, wanted, why)


def _of_locked_memory(limits: Limits) -> Remedy:
    found = "unlimited" if limits.locked_memory_bytes is None else limits.locked_memory_bytes
    return Remedy(
        "sudo prlimit --pid $$ --memlock=unlimited    # in the shell that then starts the broker",
        f"prlimit --pid $$ --memlock={found}",
        "LimitMEMLOCK=infinity in the unit, or `* - memlock unlimited` in /etc/security/limits.d/",
    )


def _direct(path: str, refusal: str | None) -> Finding:
    status = Status.OK if refusal is None else Status.ADVICE
    why = "an append engine that goes around the page cache needs it; without it the broker takes another"
    return Finding(f"O_DIRECT in {path}", status, refusal or "works", "works", why)


def _clock(kernel: Kernel) -> Finding:
    subject, found, wanted = "clock source", kernel.clock_source, words(_FAST_CLOCKS)
    why = "every request takes its times, and a clock that a process cannot read by itself makes each a system call"
    if found is None:
        return Finding(subject, Status.UNKNOWN, "unknown", wanted, why)
    if found in _FAST_CLOCKS:
        return Finding(subject, Status.OK, found, wanted, why)
    better = next((clock for clock in _FAST_CLOCKS if clock in kernel.clock_sources), None)
    remedy = None if better is None else sysfs(_CLOCK, better, found, f"the boot option clocksource={better}")
    return Finding(subject, Status.WARNING, found, wanted, why, remedy)


def _governor(cpu: Cpu) -> Finding:
    subject, wanted = "CPU governor", "performance"
    why = "a CPU that has clocked down serves the first requests after a pause late"
    if not cpu.governors:
        return Finding(subject, Status.OK, "none here: the host or the firmware decides", wanted, why)
    found, slow = ", ".join(cpu.governors), [each for each in cpu.governors if each in _SLOW_GOVERNORS]
    if not slow:
        return Finding(subject, Status.OK, found, wanted, why)
    remedy = sysfs(_GOVERNORS, wanted, slow[0], "the boot option cpufreq.default_governor=performance")
    return Finding(subject, Status.ADVICE, found, wanted, why, remedy)


def _crc32c(cpu: Cpu) -> Finding:
    wanted, why = "instructions for CRC32C", "every byte that is produced has its CRC32C compared"
    if cpu.features:
        return Finding("CPU", Status.OK, f"{cpu.model}: {', '.join(cpu.features)}", wanted, why)
    return Finding("CPU", Status.ADVICE, f"{cpu.model}: none that is used", wanted, why)


def _numa(cpu: Cpu) -> Finding:
    why = "bytes that cross from one node's memory to the other's CPUs cost more each time they are copied"
    remedy = Remedy(
        "numactl --cpunodebind=0 --membind=0 pybroker serve …", "start it without numactl", needs_root=False
    )
    return Finding("NUMA nodes", Status.ADVICE, str(cpu.numa_node_count), "one for the broker", why, remedy)
