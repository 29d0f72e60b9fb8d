"""What is found on captured machines, and that every fix has its undo."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trees import unpack

from pybroker.config.broker import BrokerConfig
from pybroker.profiles import choose_here
from pybroker.profiles.check import Finding, Probe, Status, check
from pybroker.profiles.check.finding import words
from pybroker.profiles.check.probe import probe_here
from pybroker.profiles.facts import read_machine
from pybroker.profiles.sizes import format_bytes

ALLOWED = Probe(None, {})


def findings(name: str, tmp_path: Path, log_dirs: str = "/data", probe: Probe | None = None) -> dict[str, Finding]:
    choice = choose_here(BrokerConfig.load(None, [f"log.dirs={log_dirs}"]), unpack(name, tmp_path / name))
    found = check(choice, probe)
    assert len({each.subject for each in found}) == len(found)
    return {each.subject: each for each in found}


def to_do(found: dict[str, Finding]) -> dict[str, str]:
    return {each.subject: each.found for each in found.values() if each.status in (Status.ADVICE, Status.WARNING)}


def test_a_machine_that_is_as_wanted(tmp_path: Path) -> None:
    found = findings("virtio", tmp_path, log_dirs="/data")
    assert to_do(found) == {
        "control group: CPU": "1.5 CPUs",
        "control group: vda": "reads 200 MiB/s, 200 reads/s",
    }
    assert (found["control group: memory"].status, found["control group: memory"].found) == (Status.OK, "3 GiB")
    assert found["CPU governor"].status is Status.OK
    assert (found["scheduler of vda"].status, found["write cache of vda"].found) == (Status.OK, "write back")


def test_a_governor_that_clocks_down(tmp_path: Path) -> None:
    found = findings("nvme", tmp_path, log_dirs="/data,/srv/with blank/x")
    assert to_do(found) == {"file system of /srv/with blank": "tmpfs", "CPU governor": "performance, powersave"}
    assert found["file system of /srv/with blank"].status is Status.WARNING
    assert found["write cache of nvme0n1"].found == "write back, FUA"
    remedy = found["CPU governor"].remedy
    assert remedy is not None
    path = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
    assert (remedy.fix, remedy.undo) == (f"echo performance | sudo tee {path}", f"echo powersave | sudo tee {path}")


def test_a_scheduler_and_how_to_change_it(tmp_path: Path) -> None:
    found = findings("sata-ssd", tmp_path)
    assert to_do(found) == {"scheduler of sda": "bfq"}
    remedy = found["scheduler of sda"].remedy
    assert remedy is not None
    assert remedy.fix == "echo mq-deadline | sudo tee /sys/block/sda/queue/scheduler"
    assert remedy.undo == "echo bfq | sudo tee /sys/block/sda/queue/scheduler"
    assert 'KERNEL=="sda", ATTR{queue/scheduler}="mq-deadline"' in remedy.keep
    assert remedy.needs_root


def test_mounted_without_barriers_on_disks_without_a_scheduler(tmp_path: Path) -> None:
    found = findings("hdd", tmp_path)
    assert to_do(found) == {
        "mount of /data": "nobarrier",
        "scheduler of sda": "none",
        "scheduler of sdb": "none",
        "swap": "8 GiB, vm.swappiness = 60",
    }
    assert found["mount of /data"].status is Status.WARNING
    remedy, swap = found["mount of /data"].remedy, found["swap"].remedy
    assert remedy is not None
    assert swap is not None
    assert (remedy.fix, remedy.undo) == (
        "sudo mount -o remount,barrier /data",
        "sudo mount -o remount,nobarrier /data",
    )
    assert (swap.fix, swap.undo) == ("sudo sysctl -w vm.swappiness=1", "sudo sysctl -w vm.swappiness=60")


def test_a_container_is_told_what_it_cannot_see(tmp_path: Path) -> None:
    found = findings("container", tmp_path, log_dirs="/data/kafka,/kafka")
    assert to_do(found) == {"file system of /": "overlay"}
    assert (found["disk of /data"].status, found["disk of /data"].found) == (
        Status.UNKNOWN,
        "/dev/sda1, which /sys does not show",
    )
    assert found["control group: memory"].found == "2 GiB, slowed down from 1.8 GiB"


def test_rings_need_room_in_memory(tmp_path: Path) -> None:
    def rings(name: str, *overrides: str) -> list[Finding]:
        root = tmp_path / name
        if not root.exists():
            unpack(name, root)
        choice = choose_here(BrokerConfig.load(None, ["log.dirs=/data", *overrides]), root)
        return [each for each in check(choice) if each.subject.startswith("tail rings")]

    direct = "pybroker.append.engine=direct"
    assert rings("container", "pybroker.append.engine=paced") == []
    (found,) = rings("container", direct)
    assert (found.subject, found.status) == ("tail rings in /dev/shm", Status.ADVICE)
    assert (found.found, found.wanted) == ("tmpfs, 64 MiB", "tmpfs, 256 MiB or more")
    assert found.remedy is not None
    assert (found.remedy.fix, found.remedy.undo) == (
        "sudo mount -o remount,size=524288k /dev/shm",
        "sudo mount -o remount,size=65536k /dev/shm",
    )
    (found,) = rings("container", direct, "pybroker.tail.ring.budget.bytes=67108864")
    assert found.status is Status.OK
    # There /dev/shm is no mount of its own.
    (found,) = rings("nvme", direct)
    assert (found.status, found.found) == (Status.ADVICE, "devtmpfs")


def test_a_small_board(tmp_path: Path) -> None:
    found = findings("board", tmp_path)
    assert to_do(found) == {
        "file system of /": "btrfs",
        "kernel": "6.1.21-v8+",
        "CPU governor": "ondemand",
    }
    for subject in (
        "clock source",
        "dirty pages",
        "writeback",
        "swap",
        "open files",
        "real-time priority",
        "transparent huge pages",
    ):
        assert found[subject].status is Status.UNKNOWN
    remedy = found["file system of /"].remedy
    assert remedy is not None
    assert (remedy.needs_root, remedy.undo) == (False, "chattr -C /data")


@pytest.mark.parametrize(
    ("file", "text", "subject", "status", "fix"),
    [
        ("proc/sys/kernel/io_uring_disabled", "2", "io_uring", Status.ADVICE, "kernel.io_uring_disabled=0"),
        ("proc/sys/kernel/osrelease", "5.15.0-91", "io_uring", Status.ADVICE, None),
        ("proc/sys/vm/dirty_bytes", "33554432", "dirty pages", Status.ADVICE, "vm.dirty_bytes=268435456"),
        ("proc/sys/vm/dirty_ratio", "60", "dirty pages", Status.ADVICE, "vm.dirty_ratio=20"),
        ("proc/sys/vm/dirty_writeback_centisecs", "0", "writeback", Status.WARNING, "_centisecs=500"),
        ("proc/sys/vm/dirty_expire_centisecs", "60000", "writeback", Status.ADVICE, "_centisecs=3000"),
        ("proc/self/limits", "Max open files   1024   4096   files", "open files", Status.ADVICE, "--nofile="),
        ("proc/self/limits", "Max realtime priority  0   0", "real-time priority", Status.ADVICE, "--rtprio=1"),
        ("sys/devices/system/node/online", "0-1", "NUMA nodes", Status.ADVICE, "numactl"),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock source",
            Status.WARNING,
            "echo tsc",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
            "transparent huge pages",
            Status.ADVICE,
            "echo madvise",
        ),
        ("proc/self/mountinfo", "1 0 259:2 / / rw - nfs4 host:/x rw", "file system of /", Status.WARNING, None),
        ("proc/self/mountinfo", "1 0 259:2 / / rw - fuse.sshfs x rw", "file system of /", Status.WARNING, None),
        ("proc/self/mountinfo", "1 0 0:40 / / rw - zfs tank rw", "disk of /", Status.UNKNOWN, None),
        ("proc/self/mountinfo", "1 0 259:2 / / rw - newfs x rw", "file system of /", Status.UNKNOWN, None),
        ("proc/self/mountinfo", "1 0 259:2 / / rw - ext4 x rw", "mount of /", Status.ADVICE, "remount,noatime"),
        (
            "proc/self/mountinfo",
            "1 0 259:2 / / rw,noatime - ext4 /dev/x rw,data=journal",
            "mount of /",
            Status.ADVICE,
            "sudo umount / && sudo mount -o data=ordered /dev/x /",
        ),
        ("proc/sys/kernel/osrelease", "", "io_uring", Status.UNKNOWN, None),
        ("proc/cpuinfo", "vendor_id : x\nmodel name : Old", "CPU", Status.ADVICE, None),
        ("sys/fs/cgroup/system.slice/memory.max", "536870912", "control group: memory", Status.ADVICE, "docker"),
    ],
)
def test_one_thing_at_a_time(
    file: str, text: str, subject: str, status: Status, fix: str | None, tmp_path: Path
) -> None:
    root = unpack("nvme", tmp_path)
    (root / file).write_text(text)
    choice = choose_here(BrokerConfig.load(None, ["log.dirs=/data"]), root)
    found = {each.subject: each for each in check(choice)}[subject]
    assert found.status is status
    if fix is None:
        assert found.remedy is None
    else:
        assert found.remedy is not None
        assert fix in found.remedy.fix
        assert found.remedy.undo


def test_undoing_sets_the_bound_that_was_there(tmp_path: Path) -> None:
    root = unpack("nvme", tmp_path)
    (root / "proc/sys/vm/dirty_ratio").write_text("0")
    (root / "proc/sys/vm/dirty_bytes").write_text(str(30 << 30))
    choice = choose_here(BrokerConfig.load(None, ["log.dirs=/data"]), root)
    (found,) = [each for each in check(choice) if each.subject == "dirty pages"]
    assert found.remedy is not None
    assert found.found == "30 GiB (vm.dirty_bytes = 32212254720)"
    assert (found.remedy.fix, found.remedy.undo) == (
        "sudo sysctl -w vm.dirty_ratio=20",
        "sudo sysctl -w vm.dirty_bytes=32212254720",
    )


def test_the_scheduler_goes_by_the_medium_that_was_measured(tmp_path: Path) -> None:
    root = unpack("virtio", tmp_path)
    (root / "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/scheduler").write_text("[none] mq-deadline")
    config = BrokerConfig.load(None, ["log.dirs=/data"])
    choice = choose_here(config, root)
    assert {each.subject: each.status for each in check(choice)}["scheduler of vda"] is Status.OK
    saved = root / "var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(json.dumps({"machine": choice.machine.as_dict(), "medium": {"name": "rotating", "why": "slow"}}))
    found = {each.subject: each for each in check(choose_here(config, root))}["scheduler of vda"]
    assert (found.status, found.wanted) == (Status.ADVICE, "mq-deadline or bfq")


def test_what_was_tried_outranks_version_numbers(tmp_path: Path) -> None:
    root = unpack("nvme", tmp_path / "disabled")
    (root / "proc/sys/kernel/io_uring_disabled").write_text("1")
    choice = choose_here(BrokerConfig.load(None, ["log.dirs=/data"]), root)
    assert {each.subject: each.status for each in check(choice, ALLOWED)}["io_uring"] is Status.OK
    refused = findings("virtio", tmp_path, probe=replace(ALLOWED, io_uring="forbidden", direct={"/data": "no"}))
    assert (refused["io_uring"].status, refused["io_uring"].found) == (Status.ADVICE, "forbidden")
    assert refused["io_uring"].remedy is not None
    assert "io_uring_enter" in refused["io_uring"].remedy.fix
    assert (refused["O_DIRECT in /data"].status, refused["O_DIRECT in /data"].found) == (Status.ADVICE, "no")


def test_this_kernel_is_tried_and_nothing_is_left_behind(tmp_path: Path) -> None:
    log_dir = tmp_path / "not" / "there"
    probe = probe_here(read_machine([log_dir]))
    assert set(probe.direct) <= {str(log_dir)}
    assert list(tmp_path.iterdir()) == []


def test_words_and_sizes() -> None:
    assert [words(each) for each in (("a",), ("a", "b"), ("a", "b", "c"))] == ["a", "a or b", "a, b or c"]
    sizes = (0, 1023, 1536, 3 << 30, 1 << 60, None)
    assert [format_bytes(each) for each in sizes] == ["0 B", "1023 B", "1.5 KiB", "3 GiB", "1024 PiB", "unknown"]
