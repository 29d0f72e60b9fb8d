"""Facts of captured machines: what lies beneath a log dir, control groups of both versions, what containers hide."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import unpack

from pybroker.profiles.facts import read_machine
from pybroker.profiles.facts.block import read_device
from pybroker.profiles.facts.tree import Tree, chosen_of, numbers_of
from pybroker.profiles.machine import IoLimit, Limits, Machine


def machine(name: str, tmp_path: Path, *log_dirs: str) -> Machine:
    return read_machine([Path(each) for each in log_dirs or ("/var/lib/kafka",)], unpack(name, tmp_path / name))


def test_a_partition_stands_on_its_drive(tmp_path: Path) -> None:
    (storage,) = machine("nvme", tmp_path).storage
    assert (storage.mount_point, storage.file_system, storage.source) == ("/", "ext4", "/dev/nvme0n1p2")
    assert storage.options == ("rw", "relatime", "errors=remount-ro")
    device = storage.device
    assert device is not None
    assert storage.disks == (device,)
    assert (device.name, device.number, device.kind, device.transport) == ("nvme0n1", "259:0", "disk", "nvme")
    assert (device.model, device.size_bytes) == ("Samsung SSD 990 PRO 1TB", 1953525168 * 512)
    assert (device.rotational, device.write_cache, device.fua) == (False, "write back", True)
    assert (device.scheduler, device.schedulers) == ("none", ("none", "mq-deadline"))
    assert (device.request_count, device.logical_block_bytes, device.physical_block_bytes) == (1023, 512, 512)
    assert (device.dma_alignment_bytes, device.read_ahead_bytes) == (4, 128 << 10)


def test_mapped_devices_are_followed_down_to_the_disk(tmp_path: Path) -> None:
    (storage,) = machine("sata-ssd", tmp_path).storage
    assert storage.device is not None
    assert (storage.device.kind, storage.device.model, storage.device.transport) == ("lvm", "vg0-root", None)
    assert [(disk.name, disk.transport, disk.scheduler) for disk in storage.disks] == [("sda", "sata", "bfq")]


def test_a_mirror_has_two_disks_and_each_log_dir_its_own(tmp_path: Path) -> None:
    data, root = machine("hdd", tmp_path, "/data/kafka", "/var/kafka").storage
    assert data.device is not None
    assert (data.device.name, data.device.kind) == ("md0", "md")
    # The second disk has a SATA connector, behind a SAS controller.
    assert [(disk.name, disk.transport) for disk in data.disks] == [("sda", "sata"), ("sdb", "sata")]
    assert [disk.name for disk in root.disks] == ["nvme0n1"]


@pytest.mark.parametrize(
    ("path", "transport"),
    [
        ("pci0000:00/0000:00:1c.4/0000:3c:00.0/nvme/nvme0/nvme0n1", "nvme"),
        ("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "nvme"),
        ("virtual/nvme-fabrics/ctl/nvme0/nvme0n1", "network"),
        ("pci0000:00/0000:00:05.0/virtio2/host2/target2:0:0/2:0:0:1/block/sda", "virtio"),
        ("platform/a003e00.virtio_mmio/virtio0/block/vda", "virtio"),
        ("vbd-51712/block/xvda", "xen"),
        ("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/763a35b7-6c97/host0/target0:0:0/0:0:0:0/block/sda", "hyperv"),
        ("pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", "usb"),
        ("pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda", "sata"),
        ("pci0000:74/0000:74:02.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda", "sas"),
        ("pci0000:00/0000:03:00.0/host0/target0:2:0/0:2:0:0/block/sda", "scsi"),
        ("platform/host4/session1/target4:0:0/4:0:0:1/block/sdc", "iscsi"),
        ("pci0000:00/0000:05:00.0/host1/rport-1:0-2/target1:0:0/1:0:0:0/block/sdd", "fibre channel"),
        ("virtual/block/nbd0", "network"),
        ("virtual/block/something7", None),
    ],
)
def test_how_a_disk_is_connected(path: str, transport: str | None, tmp_path: Path) -> None:
    (tmp_path / "sys/devices" / path).mkdir(parents=True)
    device = read_device(Tree(tmp_path), f"/sys/devices/{path}")
    assert (device.transport, device.kind, device.name) == (transport, "disk", path.rpartition("/")[2])


def test_a_loop_device_stands_on_the_disk_of_its_file(tmp_path: Path) -> None:
    (storage,) = machine("virtio", tmp_path, "/loop/kafka").storage
    assert storage.device is not None
    assert (storage.device.name, storage.device.kind) == ("loop0", "loop")
    assert [(disk.name, disk.transport) for disk in storage.disks] == [("vda", "virtio")]


def test_a_device_is_found_by_its_name_where_the_file_system_has_no_number(tmp_path: Path) -> None:
    found = machine("board", tmp_path)
    (storage,) = found.storage
    assert [(disk.name, disk.transport) for disk in storage.disks] == [("mmcblk0", "mmc")]
    assert (found.kernel.architecture, found.cpu.model, found.cpu.online_count) == ("aarch64", "0x41 0xd08", 2)
    assert (found.cpu.features, found.cpu.governors) == (("crc32",), ("ondemand",))
    assert (found.host.hypervisor, found.host.product) == (None, "Raspberry Pi 4 Model B Rev 1.4")
    assert found.kernel.io_uring_disabled is None


def test_a_container_hides_the_disk(tmp_path: Path) -> None:
    found = machine("container", tmp_path, "/data/kafka", "/kafka")
    volume, layer = found.storage
    assert (volume.mount_point, volume.file_system, volume.device, volume.disks) == ("/data", "ext4", None, ())
    assert (layer.file_system, layer.device) == ("overlay", None)
    assert found.host.is_container
    assert found.cpu.allowed_count == 5
    group = found.control_group
    assert (group.version, group.cpu_quota, group.memory_max_bytes) == (2, 2.5, 2 << 30)
    assert group.memory_high_bytes == 1932735283
    assert group.io == (IoLimit("8:0", None, 104857600, None, None),)


def test_bounds_of_version_1_are_the_tightest_of_all_levels(tmp_path: Path) -> None:
    group = machine("virtio", tmp_path).control_group
    assert (group.version, group.cpu_quota, group.memory_max_bytes) == (1, 1.5, 3 << 30)
    assert group.io == (IoLimit("254:0", 209715200, None, 200, None), IoLimit("8:0", None, None, 50, None))


def test_a_group_without_bounds_has_none(tmp_path: Path) -> None:
    root = unpack("virtio", tmp_path / "first")
    (root / "sys/fs/cgroup/memory/brokers/one/memory.limit_in_bytes").write_text("9223372036854771712")
    assert read_machine([], root).control_group.memory_max_bytes is None
    group = machine("nvme", tmp_path).control_group
    assert (group.version, group.cpu_quota, group.memory_max_bytes, group.memory_high_bytes) == (2, None, None, None)
    assert machine("sata-ssd", tmp_path).control_group.version == 0


def test_cpu_memory_and_limits(tmp_path: Path) -> None:
    found = machine("nvme", tmp_path)
    assert (found.kernel.release, found.kernel.version) == ("6.8.0-45-generic", (6, 8))
    assert found.kernel.features == ("io_uring", "cachestat")
    assert (found.kernel.clock_source, found.kernel.clock_sources) == ("tsc", ("tsc", "hpet", "acpi_pm"))
    assert (found.cpu.model, found.cpu.online_count) == ("12th Gen Intel(R) Core(TM) i7-12700", 8)
    assert found.cpu.features == ("sse4_2", "pclmulqdq", "vpclmulqdq")
    assert found.cpu.governors == ("performance", "powersave")
    assert (found.memory.total_bytes, found.memory.swap_bytes) == (32768000 << 10, 0)
    assert (found.memory.transparent_huge_pages, found.memory.dirty_ratio) == ("madvise", 20)
    assert found.limits == Limits(1024, 1048576, 8388608, True)
    assert (found.host.hypervisor, found.host.vendor, found.host.is_container) == (None, "Dell Inc.", False)


def test_a_hypervisor_is_known_by_its_clock(tmp_path: Path) -> None:
    assert machine("virtio", tmp_path).host.hypervisor == "kvm"


@pytest.mark.parametrize(
    ("vendor", "flag", "expected"),
    [("Amazon EC2", "", None), ("QEMU", "hypervisor", "kvm"), ("Nobody", "hypervisor", "unknown")],
)
def test_on_x86_the_cpu_says_whether_there_is_one(tmp_path: Path, vendor: str, flag: str, expected: str | None) -> None:
    root = unpack("nvme", tmp_path)
    (root / "sys/class/dmi/id/sys_vendor").write_text(vendor)
    (root / "proc/cpuinfo").write_text(f"processor : 0\nvendor_id : x\nflags : fpu {flag}\n")
    assert read_machine([], root).host.hypervisor == expected


def test_mounts_hidden_beneath_others_do_not_count(tmp_path: Path) -> None:
    lines = [
        "1 0 8:0 / / rw - ext4 /dev/a rw",
        "2 1 8:1 / /data/inner rw - ext4 /dev/b rw",
        "3 1 8:2 / /data rw - xfs /dev/c rw",
        "4 3 8:3 / /data/other\\040place rw - btrfs /dev/d rw",
        "5 1 8:4 / / rw - ext4 /dev/over rw",
        "this is no mount",
    ]
    path = tmp_path / "proc/self/mountinfo"
    path.parent.mkdir(parents=True)
    # Without the one over the root.
    path.write_text("\n".join(lines[:4] + lines[5:]))
    log_dirs = [Path(each) for each in ("/data/inner/x", "/data/other place", "/database", "/")]
    assert [each.source for each in read_machine(log_dirs, tmp_path).storage] == [
        "/dev/c",
        "/dev/d",
        "/dev/a",
        "/dev/a",
    ]
    # As an initial RAM file system shows itself, where it is seen at all.
    path.write_text("\n".join(["0 0 0:2 / / rw - rootfs rootfs rw", *lines[:4]]))
    assert [each.source for each in read_machine(log_dirs, tmp_path).storage][:2] == ["/dev/c", "/dev/d"]
    for listed in (lines, [lines[4], *lines[:4]]):
        path.write_text("\n".join(listed))
        assert [each.source for each in read_machine(log_dirs, tmp_path).storage] == ["/dev/over"] * 4


def test_nothing_is_known_of_an_empty_root(tmp_path: Path) -> None:
    found = read_machine([Path("/data")], tmp_path)
    assert (found.kernel.version, found.cpu.online_count, found.storage) == ((0, 0), 1, ())
    assert (found.memory.total_bytes, found.control_group.version, found.host.hypervisor) == (None, 0, None)


def test_this_machine_is_read(tmp_path: Path) -> None:
    found = read_machine([tmp_path])
    assert found.kernel.version >= (3, 0)
    assert found.cpu.allowed_count >= 1
    assert found.memory.total_bytes is not None
    assert [each.path for each in found.storage] == [str(tmp_path)]


def test_lists_of_the_kernel(tmp_path: Path) -> None:
    assert numbers_of("0-2,8") == {0, 1, 2, 8}
    assert numbers_of("none") == numbers_of(None) == set()
    assert chosen_of("none [mq-deadline] bfq") == ("mq-deadline", ("none", "mq-deadline", "bfq"))
    assert (chosen_of("none"), chosen_of("a b"), chosen_of(None)) == (
        ("none", ("none",)),
        (None, ("a", "b")),
        (None, ()),
    )


def test_a_tree_reads_what_it_finds(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("12\n")
    (tmp_path / "bytes").write_bytes(b"a\xff\0")
    (tmp_path / "out").symlink_to("/usr")
    (tmp_path / "in").symlink_to("number")
    tree = Tree(tmp_path)
    assert tree.text("/bytes") == "a\ufffd"
    assert (tree.resolve("/in"), tree.resolve("/out"), tree.resolve("/")) == ("/number", "/out", "/")
    assert (tree.number("/number"), tree.number("/missing"), tree.text("/missing")) == (12, None, None)
