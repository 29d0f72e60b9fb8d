"""Kernel, CPUs, memory, limits, and what the kernel runs on."""

from __future__ import annotations

import re

from pybroker.profiles.facts.mounts import Mount, mount_of
from pybroker.profiles.facts.tree import Tree, chosen_of, numbers_of
from pybroker.profiles.machine import Cpu, Host, Kernel, Limits, Memory

#: Features of the kernel by the version that brought them.
_KERNEL_FEATURES = {"io_uring": (6, 1), "cachestat": (6, 5), "RWF_DONTCACHE": (6, 14)}
#: Instruction sets that the data plane has code for, by the names of /proc/cpuinfo.
_FEATURES = ("sse4_2", "pclmulqdq", "vpclmulqdq", "avx512f", "avx512vl", "crc32", "pmull")
#: The clock that a hypervisor lends its guests tells its name.
_CLOCK_HYPERVISORS = {"kvm-clock": "kvm", "hyperv_clocksource_tsc_page": "hyperv", "hyperv_clocksource_msr": "hyperv",
                      "xen": "xen"}  # fmt: skip
#: Words of the firmware's vendor and product in virtual machines.
_VIRTUAL_WORDS = {"qemu": "kvm", "kvm": "kvm", "vmware": "vmware", "virtualbox": "virtualbox", "bochs": "bochs",
                  "innotek": "virtualbox", "xen": "xen", "parallels": "parallels", "bhyve": "bhyve",
                  "amazon ec2": "kvm", "google compute engine": "kvm", "openstack": "kvm",
                  "virtual machine": "hyperv", "apple virtualization": "apple"}  # fmt: skip
_CAP_SYS_NICE = 23
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")


def read_kernel(tree: Tree) -> Kernel:
    """The kernel, by /proc/sys/kernel."""
    release = tree.text("/proc/sys/kernel/osrelease") or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    clock = "/sys/devices/system/clocksource/clocksource0"
    return Kernel(
        release=release,
        version=version,
        architecture=_architecture(tree),
        features=tuple(name for name, since in _KERNEL_FEATURES.items() if version >= since),
        io_uring_disabled=tree.number("/proc/sys/kernel/io_uring_disabled"),
        clock_source=tree.text(f"{clock}/current_clocksource"),
        clock_sources=tuple((tree.text(f"{clock}/available_clocksource") or "").split()),
    )


def read_cpu(tree: Tree) -> Cpu:
    """The CPUs, by /proc/cpuinfo and /sys/devices/system."""
    lines = _cpuinfo(tree)
    listed = sum(1 for key, _ in lines if key == "processor") or 1
    online = numbers_of(tree.text("/sys/devices/system/cpu/online")) or set(range(listed))
    allowed = numbers_of(_status(tree, "Cpus_allowed_list")) & online
    flags = _flags(lines)
    policies = "/sys/devices/system/cpu/cpufreq"
    governors = {tree.text(f"{policies}/{name}/scaling_governor") for name in tree.names(policies)}
    return Cpu(
        model=_model(tree, dict(lines)),
        online_count=len(online),
        allowed_count=len(allowed or online),
        features=tuple(name for name in _FEATURES if name in flags),
        numa_node_count=len(numbers_of(tree.text("/sys/devices/system/node/online"))) or 1,
        governors=tuple(sorted(each for each in governors if each)),
    )


def read_memory(tree: Tree) -> Memory:
    """Memory, by /proc/meminfo and /proc/sys/vm."""
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", tree.text("/proc/meminfo") or "", re.MULTILINE))
    huge_pages = "/sys/kernel/mm/transparent_hugepage"

    def vm(name: str) -> int | None:
        return tree.number(f"/proc/sys/vm/{name}")

    return Memory(
        total_bytes=int(sizes["MemTotal"]) << 10 if "MemTotal" in sizes else None,
        swap_bytes=int(sizes["SwapTotal"]) << 10 if "SwapTotal" in sizes else None,
        transparent_huge_pages=chosen_of(tree.text(f"{huge_pages}/enabled"))[0],
        transparent_huge_pages_shmem=chosen_of(tree.text(f"{huge_pages}/shmem_enabled"))[0],
        dirty_ratio=vm("dirty_ratio"),
        dirty_bytes=vm("dirty_bytes"),
        dirty_background_ratio=vm("dirty_background_ratio"),
        dirty_background_bytes=vm("dirty_background_bytes"),
        dirty_expire_centisecs=vm("dirty_expire_centisecs"),
        dirty_writeback_centisecs=vm("dirty_writeback_centisecs"),
        swappiness=vm("swappiness"),
    )


def read_host(tree: Tree, mounts: list[Mount]) -> Host:
    """The kind of machine or hypervisor below the kernel. In a container the kernel's view of the machine is still
    there."""
    vendor, product = tree.text("/sys/class/dmi/id/sys_vendor"), tree.text("/sys/class/dmi/id/product_name")
    root = mount_of(mounts, "/")
    is_overlay = root is not None and root.file_system == "overlay"
    return Host(
        hypervisor=_hypervisor(tree, f"{vendor} {product}".lower()),
        is_container=is_overlay or any(tree.exists(mark) for mark in _CONTAINER_MARKS),
        vendor=vendor or None,
        product=product or tree.text("/proc/device-tree/model") or None,
    )


def read_limits(tree: Tree) -> Limits:
    """Limits of this process, by /proc/self/limits."""
    found = {}
    for line in (tree.text("/proc/self/limits") or "").splitlines():
        match = re.match(r"(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", line)
        if match:
            found[match[1]] = (_limit(match[2]), _limit(match[3]))
    files = found.get("Max open files", (None, None))
    locked = found.get("Max locked memory", (None, None))[0]
    priority = found.get("Max realtime priority")
    real_time = None if priority is None else priority[0] != 0 or _may_set_priorities(tree)
    return Limits(files[0], files[1], locked, real_time)


def _may_set_priorities(tree: Tree) -> bool:
    """CAP_SYS_NICE, which stands above the limits."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", tree.text("/proc/self/status") or "", re.MULTILINE)
    return effective is not None and bool(int(effective[1], 16) >> _CAP_SYS_NICE & 1)


def _limit(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _hypervisor(tree: Tree, firmware: str) -> str | None:
    if "control_d" in (tree.text("/proc/xen/capabilities") or ""):
        return None  # Xen's own first domain has the disks and CPUs themselves
    lent = next((word for word in (tree.text("/sys/hypervisor/type"), _by_clock(tree)) if word), None)
    named = next((name for words, name in _VIRTUAL_WORDS.items() if words in firmware), None)
    if _architecture(tree) == "x86_64":
        # The CPU says it, and firmware of a cloud's bare machines has the cloud's name too.
        return (lent or named or "unknown") if "hypervisor" in _flags(_cpuinfo(tree)) else None
    tree_says = tree.text("/proc/device-tree/hypervisor/compatible")
    return lent or named or (tree_says.partition(",")[2] or tree_says if tree_says else None)


def _by_clock(tree: Tree) -> str | None:
    clocks = (tree.text("/sys/devices/system/clocksource/clocksource0/available_clocksource") or "").split()
    return next((_CLOCK_HYPERVISORS[clock] for clock in clocks if clock in _CLOCK_HYPERVISORS), None)


def _architecture(tree: Tree) -> str:
    told = tree.text("/proc/sys/kernel/arch")
    if told:
        return told
    # Before Linux 6.1 only the CPUs tell.
    keys = {key for key, _ in _cpuinfo(tree)}
    return "x86_64" if "vendor_id" in keys else "aarch64" if "CPU implementer" in keys else "unknown"


def _cpuinfo(tree: Tree) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in (tree.text("/proc/cpuinfo") or "").splitlines())
    return [(key.strip(), value.strip()) for key, colon, value in lines if colon]


def _flags(lines: list[tuple[str, str]]) -> set[str]:
    found = dict(lines)
    return set(found.get("flags", found.get("Features", "")).split())


def _model(tree: Tree, cpuinfo: dict[str, str]) -> str:
    if "model name" in cpuinfo:
        return cpuinfo["model name"]
    numbers = [cpuinfo[key] for key in ("CPU implementer", "CPU part") if key in cpuinfo]
    return " ".join(numbers) or _architecture(tree)


def _status(tree: Tree, name: str) -> str | None:
    for line in (tree.text("/proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None
