"""Facts about the machine: values only, as the kernel names them. `facts` reads them.

None is "not told": a container hides much, and older kernels lack some. Immutable, so any thread may read them.
"""

from __future__ import annotations

from pybroker.values import Value


class Kernel(Value):
    """The running kernel and what its settings allow."""

    #: As uname -r says it, and its first two numbers: (6, 18).
    release: str
    version: tuple[int, int]
    #: x86_64, aarch64, ...
    architecture: str
    #: The operations that the broker can use and this version has; a filter or a file system may still refuse them.
    features: tuple[str, ...]
    #: kernel.io_uring_disabled: 0 all may use it, 1 one group (and CAP_SYS_ADMIN), 2 nobody. None before Linux 6.6.
    io_uring_disabled: int | None
    clock_source: str | None
    clock_sources: tuple[str, ...]


class Cpu(Value):
    """The CPUs, all of one kind."""

    model: str
    online_count: int
    #: Those this process may run on.
    allowed_count: int
    #: The instruction sets that the data plane has code for.
    features: tuple[str, ...]
    numa_node_count: int
    #: The frequency governors in use; none in most virtual machines.
    governors: tuple[str, ...]


class Memory(Value):
    """Memory, and the settings under vm.* that a log notices."""

    total_bytes: int | None
    swap_bytes: int | None
    transparent_huge_pages: str | None
    transparent_huge_pages_shmem: str | None
    #: As the kernel has them: a ratio is in per cent, and holds while the value in bytes beside it is 0.
    dirty_ratio: int | None
    dirty_bytes: int | None
    dirty_background_ratio: int | None
    dirty_background_bytes: int | None
    dirty_expire_centisecs: int | None
    dirty_writeback_centisecs: int | None
    swappiness: int | None


class Host(Value):
    """The kind of machine or hypervisor below the kernel."""

    #: kvm, xen, vmware, ...; "unknown" when there is one without a name; None on bare metal.
    hypervisor: str | None
    is_container: bool
    vendor: str | None
    product: str | None


class Limits(Value):
    """Limits of this process; None is unlimited."""

    open_files: int | None
    open_files_hard: int | None
    locked_memory_bytes: int | None
    #: Whether a thread may take the lowest real-time priority; None is unknown.
    real_time: bool | None


class IoLimit(Value):
    """Limits that a control group sets on one block device; None is unlimited."""

    #: major:minor
    device: str
    read_bytes_per_second: int | None
    write_bytes_per_second: int | None
    reads_per_second: int | None
    writes_per_second: int | None


class ControlGroup(Value):
    """The bounds of this process's control group, the tightest of it and its ancestors; None is unbounded."""

    #: 1, 2, or 0 where none is mounted.
    version: int
    #: CPUs' worth of time.
    cpu_quota: float | None
    memory_max_bytes: int | None
    #: Beyond it the kernel slows the group down (version 2 only).
    memory_high_bytes: int | None
    io: tuple[IoLimit, ...]


class BlockDevice(Value):
    """A block device: the one a file system lies on, or a disk beneath it."""

    name: str
    #: major:minor
    number: str
    #: disk, md, dm (LVM, crypt, multipath), loop, memory (RAM disks, zram).
    kind: str
    #: The transport of a disk: nvme, sata, sas, scsi, usb, virtio, xen, hyperv, mmc, ...; None for a device that is no
    #: disk.
    transport: str | None
    model: str | None
    size_bytes: int | None
    rotational: bool | None
    #: The scheduler in use, and all there are.
    scheduler: str | None
    schedulers: tuple[str, ...]
    #: "write back": there is a cache that loses its content without power, and a flush empties it.
    write_cache: str | None
    #: Takes a single write around its cache (force unit access).
    fua: bool | None
    request_count: int | None
    logical_block_bytes: int | None
    physical_block_bytes: int | None
    #: Alignment of memory that O_DIRECT asks for.
    dma_alignment_bytes: int | None
    read_ahead_bytes: int | None


class Storage(Value):
    """The storage below one log dir."""

    path: str
    mount_point: str
    file_system: str
    #: The options of the mount, then those of the file system.
    options: tuple[str, ...]
    source: str
    #: The device of the file system; None where there is none, or the kernel does not say.
    device: BlockDevice | None
    #: The disks beneath it, itself when it is one.
    disks: tuple[BlockDevice, ...]


class Machine(Value):
    """All of it, with one `Storage` per log dir."""

    kernel: Kernel
    cpu: Cpu
    memory: Memory
    host: Host
    limits: Limits
    control_group: ControlGroup
    storage: tuple[Storage, ...]
    #: Where the append engine direct has its rings; None where nobody asked for it.
    tail_rings: Storage | None
