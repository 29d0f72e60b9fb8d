"""A machine that systemd runs, beside this one: its files over ours, its own processes, network and journal.

By systemd-nspawn on an overlay of `/`, so it has this machine's programs and nothing that is written there comes back.
Needs root. What can fail: `ProcessFailed` with the last words of whatever did.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness import keeper
from tests.harness.process import ProcessFailed

_CGROUPS = Path("/sys/fs/cgroup")
_BOOT_TIMEOUT_S = 120
_POLL_S = 0.1
#: What this machine starts at its boot is not for that one.
_OWN_UNITS = ("etc/systemd/system", "etc/init.d", *(f"etc/rc{level}.d" for level in "0123456S"))


@contextmanager
def overlay_of_this_machine(directory: Path) -> Iterator[Path]:
    """A root directory that has all of ours, and takes what is written; made below `directory`, gone at the end."""
    upper, work, root = (directory / name for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        each.mkdir()
    options = f"lowerdir=/,upperdir={upper},workdir={work}"
    _run("mount", "-t", "overlay", "overlay", "-o", options, str(root))
    try:
        for name in _OWN_UNITS:
            shutil.rmtree(root / name, ignore_errors=True)
        (root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        (root / "etc/machine-id").unlink(missing_ok=True)
        (root / "etc/machine-id").write_text("uninitialized\n")
        yield root
    finally:
        _run("umount", str(root))
        shutil.rmtree(upper)


class BootedMachine:
    """`leader` is the process id, here, of its systemd."""

    def __init__(self, root: Path, name: str) -> None:
        """Boot it and wait until it is up."""
        self.root = root
        self._groups = _make_groups(name)
        self._output = open(root.parent / "console", "wb")  # noqa: SIM115  # closed by power_off
        options = ["--register=no", "--private-network", "--console=pipe", f"--machine={name}"]
        if not Path("/run/systemd/system").is_dir():
            options.append("--keep-unit")  # nobody is here to make one
        self._process = subprocess.Popen(
            ["systemd-nspawn", "--quiet", *options, "--boot", "-D", str(root), "systemd.unit=multi-user.target"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            preexec_fn=self._enter_groups,
        )
        keeper.keep_process(self._process.pid)
        self._kept = [keeper.keep("find", group, "-depth", "-type", "d", "-delete") for group in self._groups]
        self.leader = self._wait_for_leader()
        self._wait_until_up()

    def run(self, *command: str) -> str:
        """Run a command on it; its output. ProcessFailed when it ends badly."""
        return _run(*self._entered(), *command)

    def status_of(self, *command: str) -> tuple[int, str]:
        """Run a command on it; its exit status and output."""
        done = subprocess.run([*self._entered(), *command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def run_with_our_network(self, *command: str) -> str:
        """Run a command on it that may reach what this machine reaches; its output."""
        namespaces = ("--mount", "--uts", "--ipc", "--pid")
        return _run("nsenter", "--target", str(self.leader), *namespaces, "--", *command)

    def run_on_its_network(self, *command: str) -> str:
        """Run a command of this machine that reaches the ports of that one; its output."""
        return _run("nsenter", "--target", str(self.leader), "--net", *command)

    def process_here(self, process_id: int) -> int:
        """What one of its processes is called here. LookupError."""
        namespace = os.readlink(f"/proc/{self.leader}/ns/pid")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):  # it has ended meanwhile
                ids = next(line for line in (entry / "status").read_text().splitlines() if line.startswith("NSpid:"))
                if int(ids.split()[-1]) == process_id and os.readlink(entry / "ns/pid") == namespace:
                    return int(entry.name)
        raise LookupError(f"no process {process_id} runs there")

    def power_off(self) -> None:
        """End it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessFailed):  # systemd may go before it has answered
                self.run("systemctl", "poweroff")
            try:
                self._process.wait(_BOOT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()
        for group in self._groups:
            for each in sorted(group.rglob("*/"), reverse=True):
                each.rmdir()
            group.rmdir()
        for number in self._kept:
            keeper.done(number)

    def _entered(self) -> Sequence[str]:
        return ("nsenter", "--target", str(self.leader), "--all", "--")

    def _enter_groups(self) -> None:
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def _wait_for_leader(self) -> int:
        until_s = time.monotonic() + _BOOT_TIMEOUT_S
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while time.monotonic() < until_s and self._process.poll() is None:
            for child in children.read_text().split():
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                        return int(child)
            time.sleep(_POLL_S)
        raise ProcessFailed(f"systemd did not begin:\n{self._console()}")

    def _wait_until_up(self) -> None:
        until_s = time.monotonic() + _BOOT_TIMEOUT_S
        state = ""
        while time.monotonic() < until_s:
            _, state = self.status_of("systemctl", "is-system-running")
            # Degraded: a unit of the distribution that has no place there failed.
            if state.strip() in ("running", "degraded"):
                return
            time.sleep(_POLL_S)
        raise ProcessFailed(f"systemd is {state.strip()!r} after {_BOOT_TIMEOUT_S} s:\n{self._console()}")

    def _console(self) -> str:
        return (self.root.parent / "console").read_text(errors="replace")[-2000:]


def _make_groups(name: str) -> list[Path]:
    """Control groups of its own, where no systemd is here to make them."""
    if Path("/run/systemd/system").is_dir():
        return []
    hierarchies = [_CGROUPS, _CGROUPS / "systemd", _CGROUPS / "unified"]
    groups = [each / name for each in hierarchies if (each / "cgroup.procs").exists()]
    for group in groups:
        group.mkdir()
    return groups


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
