"""Block devices as /sys shows them: from a device number or name to its queue, and to the disks beneath it."""

from __future__ import annotations

import re

from pybroker.profiles.facts.tree import Tree, chosen_of
from pybroker.profiles.machine import BlockDevice

_SECTOR_BYTES = 512
#: The first of these patterns found in a disk's path below /sys/devices tells its transport. A disk of a virtual
#: controller counts as virtual, whatever protocol it speaks.
_TRANSPORTS = (
    (re.compile(r"/virtio\d+/"), "virtio"),
    (re.compile(r"/vbd-\d+/|/xvd[a-z]+$"), "xen"),
    (re.compile(r"/vmbus|/VMBUS", re.IGNORECASE), "hyperv"),
    (re.compile(r"/usb\d+/"), "usb"),
    (re.compile(r"/nvme-fabrics/"), "network"),
    (re.compile(r"/nvme\d+n\d+$|/nvme\d+c\d+n\d+$"), "nvme"),
    (re.compile(r"/ata\d+/"), "sata"),
    (re.compile(r"/end_device-[\d:]+/"), "sas"),
    (re.compile(r"/session\d+/"), "iscsi"),
    (re.compile(r"/rport-[\d:-]+/"), "fibre channel"),
    (re.compile(r"/mmc_host/"), "mmc"),
    (re.compile(r"/(nbd|rbd|drbd)\d+$"), "network"),
    (re.compile(r"/sd[a-z]+$"), "scsi"),
)  # fmt: skip
_MAPPER_KINDS = {"LVM": "lvm", "CRYPT": "crypt", "mpath": "multipath"}
_MEMORY = re.compile(r"/(ram|zram|pmem)\d+[a-z]?$")
#: No stack of devices is deeper.
_MOST_LEVELS = 8


def find_device(tree: Tree, number: str, source: str) -> str | None:
    """The directory in /sys of the device with this number (`major:minor`). Without it, of the device that the mount
    names as its source. For a partition of a disk it is the disk's directory, since a partition has no queue."""
    path = f"/sys/dev/block/{number}"
    if not tree.exists(path):
        named = _by_source(tree, source)
        if named is None:
            return None
        path = named
    return _whole(tree, tree.resolve(path))


def read_device(tree: Tree, path: str) -> BlockDevice:
    """The device with this directory in /sys."""
    scheduler, schedulers = chosen_of(tree.text(f"{path}/queue/scheduler"))
    rotational = tree.number(f"{path}/queue/rotational")
    fua = tree.number(f"{path}/queue/fua")
    sectors = tree.number(f"{path}/size")
    dma_mask = tree.number(f"{path}/queue/dma_alignment")
    read_ahead_kib = tree.number(f"{path}/queue/read_ahead_kb")
    kind = _kind(tree, path)
    return BlockDevice(
        name=path.rpartition("/")[2],
        number=tree.text(f"{path}/dev") or "",
        kind=kind,
        transport=_transport(tree, path) if kind == "disk" else None,
        model=tree.text(f"{path}/device/model") or tree.text(f"{path}/dm/name") or None,
        size_bytes=None if sectors is None else sectors * _SECTOR_BYTES,
        rotational=None if rotational is None else rotational != 0,
        scheduler=scheduler,
        schedulers=schedulers,
        write_cache=tree.text(f"{path}/queue/write_cache"),
        fua=None if fua is None else fua != 0,
        request_count=tree.number(f"{path}/queue/nr_requests"),
        logical_block_bytes=tree.number(f"{path}/queue/logical_block_size"),
        physical_block_bytes=tree.number(f"{path}/queue/physical_block_size"),
        dma_alignment_bytes=None if dma_mask is None else dma_mask + 1,
        read_ahead_bytes=None if read_ahead_kib is None else read_ahead_kib << 10,
    )


def lower_devices(tree: Tree, path: str) -> list[str]:
    """The directories of the lowest devices below this one, through several levels such as LVM on RAID. For a disk it
    is the disk's own directory."""
    level, lowest = [path], []
    for _ in range(_MOST_LEVELS):
        below: list[str] = []
        for each in level:
            slaves = [tree.resolve(f"{each}/slaves/{name}") for name in tree.names(f"{each}/slaves")]
            below += [_whole(tree, slave) for slave in slaves]
            if not slaves:
                lowest.append(each)
        level = below
    return list(dict.fromkeys(lowest))


def backing_file(tree: Tree, path: str) -> str | None:
    """The file that backs a loop device; None for any other device. `path` is the device's directory in /sys."""
    return tree.text(f"{path}/loop/backing_file")


def _whole(tree: Tree, path: str) -> str:
    return path.rpartition("/")[0] if tree.exists(f"{path}/partition") else path


def _by_source(tree: Tree, source: str) -> str | None:
    if not source.startswith("/dev/"):
        return None
    name = source.removeprefix("/dev/")
    if tree.exists(f"/sys/class/block/{name}"):
        return f"/sys/class/block/{name}"
    mapped = name.removeprefix("mapper/")
    for each in tree.names("/sys/class/block"):
        if each.startswith("dm-") and tree.text(f"/sys/class/block/{each}/dm/name") == mapped:
            return f"/sys/class/block/{each}"
    return None


def _kind(tree: Tree, path: str) -> str:
    if tree.exists(f"{path}/dm"):
        return _MAPPER_KINDS.get((tree.text(f"{path}/dm/uuid") or "").partition("-")[0], "dm")
    if tree.exists(f"{path}/md"):
        return "md"
    if tree.exists(f"{path}/loop"):
        return "loop"
    return "memory" if _MEMORY.search(path) else "disk"


def _transport(tree: Tree, path: str) -> str | None:
    found = next((name for pattern, name in _TRANSPORTS if pattern.search(path)), None)
    # Disks with a SATA connector behind a SAS controller.
    return "sata" if found == "sas" and tree.text(f"{path}/device/vendor") == "ATA" else found
