"""`PowerDisk`: an ext4 file system on a drive that forgets, at a power cut, what no flush had reached.

ext4 on a loop device whose backing file lies on powerfs (`tests/crash/powerfs`). Needs root, /dev/fuse and a free loop
device. The caller's thread owns it as a context manager; everything it mounts is unmounted at the end.
Can fail: `PowerDiskMissing` when this machine cannot make one; `ProcessFailed` when a step fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.harness import keeper
from tests.harness.process import ProcessFailed

_RETRY_SECONDS = 60.0
_PROGRAMS = ("losetup", "mkfs.ext4", "e2fsck", "mount", "umount")


class PowerDiskMissing(RuntimeError):
    """This machine lacks what a power disk is made of."""


@dataclass(frozen=True)
class PowerCut:
    """Sectors (512 bytes) that no flush had reached, and how many of them were kept."""

    unflushed_count: int
    kept_count: int


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": _path_with_sbin()},
    )
    if done.returncode != 0:
        raise ProcessFailed(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def _path_with_sbin() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing() -> str | None:
    """Why this machine cannot make a power disk; None when it can."""
    if os.geteuid() != 0:
        return "a power disk needs root, to mount"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"a power disk needs {device}"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_path_with_sbin()) is None]
    return f"a power disk needs {', '.join(absent)}" if absent else None


def _holders(directory: Path) -> list[str]:
    """Processes that have something below it open, and those of other mount namespaces that have it mounted."""
    found, own = [], os.readlink("/proc/self/ns/mnt")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
            links = [
                *process.glob("fd/*"),
                *process.glob("map_files/*"),
                *map(process.joinpath, ("cwd", "root", "exe")),
            ]
            opened = {target for link in links if (target := _target(link)).startswith(str(directory))}
            elsewhere = os.readlink(process / "ns/mnt") != own
            mounted = elsewhere and str(directory) in (process / "mountinfo").read_text()
        except OSError:
            continue  # it has ended, or is the kernel's
        if opened or mounted:
            where = ", ".join(sorted(opened)[:5]) or "mounted in its namespace"
            found.append(f"{process.name} {command}({where})")
    return found


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # closed meanwhile


class PowerDisk:
    """`path` is the mounted file system. After `cut` it is mounted again only by `restore`."""

    def __init__(self, powerfs: Path, size_bytes: int = 192 << 20, mount_options: str = "commit=1") -> None:
        """`powerfs` is the built program. `mount_options` are ext4's."""
        reason = missing()
        if reason is not None:
            raise PowerDiskMissing(reason)
        self._powerfs = powerfs
        self.mount_options = mount_options
        self._directory = Path(tempfile.mkdtemp(prefix="pybroker-power-"))
        self._image = self._directory / "image"
        self._drive = self._directory / "drive"
        self.path = self._directory / "mounted"
        self._server: subprocess.Popen[str] | None = None
        self._loop = ""
        self._is_shared = False
        self._drive.mkdir()
        self.path.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^metadata_csum_seed", "-E", "nodiscard", self._image)

    def mount(self) -> None:
        """Power on: the file system as the image has it; ext4 replays its journal."""
        assert self._server is None
        self._share()
        self._server = subprocess.Popen(
            [self._powerfs, self._drive, self._image],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._kept = [keeper.keep("umount", "-l", self._drive)]
        if self._line() != "ready":
            raise ProcessFailed("powerfs did not start")
        disk = self._drive / "disk"
        self._loop = _run("losetup", "--find", "--show", "--direct-io=on", disk)
        self._kept.append(keeper.keep("losetup", "--detach", self._loop))
        _run("mount", "-t", "ext4", "-o", self.mount_options, self._loop, self.path)
        self._kept.append(keeper.keep("umount", self.path))

    def _share(self) -> None:
        """Have what is unmounted below be unmounted everywhere. Whoever runs in a mount namespace of its own, as under
        `ip netns exec`, would keep the device busy otherwise."""
        if not self._is_shared:
            _run("mount", "--bind", self._directory, self._directory)
            self._is_shared = True
            self._kept_directory = keeper.keep("umount", self._directory)
            _run("mount", "--make-shared", self._directory)

    def _line(self) -> str:
        assert self._server is not None and self._server.stdout is not None
        return self._server.stdout.readline().strip()

    def cut(self, seed: int, kept_percent: int) -> PowerCut:
        """Cut the power now. What is mounted goes on working, but nothing it does is remembered: end who uses it."""
        assert self._server is not None and self._server.stdin is not None
        self._server.stdin.write(f"cut {seed} {kept_percent}\n")
        self._server.stdin.flush()
        word, unflushed, kept = self._line().split()
        assert word == "cut"
        return PowerCut(int(unflushed), int(kept))

    def fail(self, operation: str, error: int) -> None:
        """Let every `read`, `write` or `flush` that reaches the drive fail with that errno from now on; 0: no more."""
        self._order("fail", operation, error)

    def slow(self, operation: str, delay_ms: int) -> None:
        """Let every such operation take so long from now on, one after the other; 0: as long as it takes."""
        self._order("slow", operation, delay_ms)

    def _order(self, what: str, operation: str, value: int) -> None:
        assert operation in ("read", "write", "flush")
        assert self._server is not None and self._server.stdin is not None
        self._server.stdin.write(f"{what} {operation} {value}\n")
        self._server.stdin.flush()
        assert self._line() == f"{what} {value}"

    def unmount(self) -> None:
        """Take the file system, the loop device and the drive away. Nobody may have files open on it."""
        if self._server is None:
            return
        if os.path.ismount(self.path):
            self._retry("umount", self.path)
        if self._loop:
            _run("losetup", "--detach", self._loop)
            self._loop = ""
        # The loop device lets go of its file a moment after it was detached.
        self._retry("umount", self._drive)
        self._server.wait(timeout=60)
        while self._kept:
            keeper.done(self._kept.pop())
        for pipe in (self._server.stdin, self._server.stdout):
            assert pipe is not None
            pipe.close()
        self._server = None

    def _retry(self, *command: str | Path) -> None:
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                _run(*command)
                return
            except ProcessFailed as error:
                if time.monotonic() > deadline:
                    raise ProcessFailed(
                        f"{error}; held by: {'; '.join(_holders(self._directory)) or 'nobody'}"
                    ) from error
                time.sleep(0.02)

    def check_file_system(self) -> None:
        """e2fsck on the image of an unmounted disk: on an ext4 that broke, a broker's state would prove nothing."""
        assert self._server is None
        _run("e2fsck", "-f", "-n", self._image)

    def __enter__(self) -> PowerDisk:
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()
        if self._is_shared:
            self._retry("umount", self._directory)
            keeper.done(self._kept_directory)
        shutil.rmtree(self._directory, ignore_errors=True)
