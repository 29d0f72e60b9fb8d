"""`pybroker doctor` on machines that are set up badly, each thing for the command alone: in a mount namespace of its
own, where other files lie over those of /proc and /sys, with other file systems, limits and rights.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pybroker.profiles.facts import read_machine
from tests.harness.process import free_port

TIMEOUT_S = 120
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

VM = "/proc/sys/vm"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
OVER = "lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"


@dataclass(frozen=True)
class Fault:
    """`files` lie over those of these names; a name that ends in a slash is a directory, whose file the content's first
    line names. `mounts` are file systems for the log dir, `command` what the doctor is started by."""

    kind: str
    files: dict[str, str] = field(default_factory=dict)
    mount: str = ""
    command: Sequence[str] = ()
    settings: Sequence[str] = ()
    says: str = ""


def _scheduler_of(path: Path) -> str | None:
    """The file of the scheduler beneath; None where the disk shows none."""
    disks = read_machine([path], Path("/"), Path("/dev/shm")).storage[0].disks
    return next((f"/sys/block/{disk.name}/queue/scheduler" for disk in disks if disk.scheduler is not None), None)


def _memory_bound() -> str | None:
    """The file that bounds the memory of this process's control group; None in the root of version 2."""
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, group in groups:
        name, root = ("memory.limit_in_bytes", "memory") if controllers == "memory" else ("memory.max", "")
        if controllers in ("memory", ""):
            for each in (Path(group), *Path(group).parents):
                bound = Path("/sys/fs/cgroup", root, *each.parts[1:], name)
                if bound.is_file():
                    return str(bound)
    return None


def _without(capability: str) -> tuple[str, ...]:
    return ("setpriv", "--bounding-set", f"-{capability}", "--inh-caps", f"-{capability}", "--")


FAULTS = [
    Fault(
        "swap",
        {"/proc/meminfo": "MemTotal: 8000000 kB\nSwapTotal: 2097152 kB\n", f"{VM}/swappiness": "60"},
        says="2 GiB, vm.swappiness = 60",
    ),
    Fault("huge-pages", {HUGE_PAGES: "[always] madvise never"}, says="always"),
    Fault("dirty-pages", {f"{VM}/dirty_ratio": "40", f"{VM}/dirty_bytes": "0"}, says="vm.dirty_ratio = 40"),
    Fault("writeback", {f"{VM}/dirty_writeback_centisecs": "0"}, says="off"),
    Fault("kernel", {"/proc/sys/kernel/osrelease": "5.10.0-28-amd64"}, says="5.10.0"),
    Fault("clock-source", {CLOCK: "acpi_pm"}, says="acpi_pm"),
    Fault("no-crc32c", {"/proc/cpuinfo": "processor: 0\nvendor_id: X\nflags: fpu sse2\n"}, says="none that is used"),
    Fault("numa", {"/sys/devices/system/node/online": "0-1"}, says="2"),
    Fault(
        "cpu-governor",
        {"/sys/devices/system/cpu/cpufreq/": "policy0/scaling_governor\npowersave"},
        says="powersave",
    ),
    Fault("file-system", mount=f"-t overlay overlay -o {OVER}", says="overlay"),
    Fault("mount-options", mount="-t tmpfs tmpfs -o sync", says="sync"),
    Fault("no-direct-io", mount="-t ramfs ramfs", says="wanted: works"),
    Fault("no-real-time", command=("prlimit", "--rtprio=0", *_without("sys_nice")), says="none is allowed"),
    Fault(
        "port-forbidden",
        command=_without("net_bind_service"),
        settings=("listeners=PLAINTEXT://127.0.0.1:92",),
        says="port 92",
    ),
]


def _script(fault: Fault, scratch: Path, log_dir: Path) -> str:
    """What a shell does in the namespace before it becomes the doctor."""
    lines = ["set -e"]
    for number, (name, content) in enumerate(fault.files.items()):
        if name.endswith("/"):
            file, _, text = content.partition("\n")
            place = scratch / f"over-{number}"
            (place / file).parent.mkdir(parents=True)
            (place / file).write_text(f"{text}\n")
        else:
            place = scratch / f"over-{number}"
            place.write_text(f"{content}\n")
        lines.append(shlex.join(["mount", "--bind", str(place), name.rstrip("/")]))
    if fault.mount:
        for name in ("lower", "upper", "work"):
            (scratch / name).mkdir(exist_ok=True)
        lines.append(f"mount {fault.mount.format(scratch=scratch)} {shlex.quote(str(log_dir))}")
    return "\n".join([*lines, 'exec "$@"'])


def examined(fault: Fault, scratch: Path) -> dict[str, dict[str, str]]:
    """The command's findings by kind."""
    log_dir = scratch / "data"
    log_dir.mkdir(parents=True, exist_ok=True)
    settings = (f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", "pybroker.metrics.listener=127.0.0.1:0")
    words = [word for each in (*settings, f"log.dirs={log_dir}", *fault.settings) for word in ("--override", each)]
    doctor = [*fault.command, sys.executable, "-m", "pybroker", "doctor", "--json", *words]
    namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _script(fault, scratch, log_dir), "sh"]
    done = subprocess.run([*namespace, *doctor], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, dict[str, str]] = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["kind"], each)
    return found


@needs_root
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_a_fault_of_the_machine_is_named(fault: Fault, tmp_path: Path) -> None:
    missing = [name for name in fault.files if not Path(name).exists()]
    if missing:
        pytest.skip(f"this machine has no {missing[0]}")
    found = examined(fault, tmp_path)
    assert fault.kind in found, sorted(found)
    assert fault.says in found[fault.kind]["what"]


@needs_root
@pytest.mark.parametrize(
    ("kind", "place", "content", "says"),
    [
        ("scheduler", _scheduler_of, "none mq-deadline [bfq]", "bfq"),
        ("control-group", lambda _: _memory_bound(), str(512 << 20), "512 MiB"),
    ],
)
def test_a_fault_whose_file_is_named_by_the_machine(
    kind: str, place: Callable[[Path], str | None], content: str, says: str, tmp_path: Path
) -> None:
    name = place(tmp_path)
    if name is None:
        pytest.skip("this machine has no such file")
    assert says in examined(Fault(kind, {name: content}), tmp_path)[kind]["what"]


@needs_root
def test_settings_that_are_right_are_not_named(tmp_path: Path) -> None:
    """The other half of these tests: the files that lie over the machine's are what is read."""
    right = {
        f"{VM}/swappiness": "1",
        HUGE_PAGES: "always [madvise] never",
        f"{VM}/dirty_ratio": "20",
        f"{VM}/dirty_bytes": "0",
        f"{VM}/dirty_writeback_centisecs": "500",
        f"{VM}/dirty_expire_centisecs": "3000",
        "/proc/sys/kernel/osrelease": "6.12.0",
        CLOCK: "tsc",
    }
    present = {name: content for name, content in right.items() if Path(name).exists()}
    found = examined(Fault("none", present), tmp_path)
    assert not {"swap", "huge-pages", "dirty-pages", "writeback", "kernel", "clock-source"} & found.keys()


@needs_root
def test_too_little_locked_memory(tmp_path: Path) -> None:
    """Said of io_uring, by those kernels that charge its rings to `ulimit -l`."""
    limited = ["prlimit", "--memlock=0", *_without("ipc_lock")]
    probe = "from pybroker.native import backend_refusal; print(backend_refusal('io_uring') or '')"
    refusal = subprocess.run(
        [*limited, sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout.strip()
    if "ulimit -l" not in refusal:
        pytest.skip(f"this kernel charges no rings, or has no io_uring: {refusal}")
    found = examined(Fault("none", command=limited), tmp_path)["io-uring-refused"]
    assert "ulimit -l" in found["what"]
    assert "LimitMEMLOCK=infinity" in found["remedy"]
