"""Log dirs as directories: there, writable, with room, apart, of this node and one cluster. Reads a few small files."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from pybroker.doctor import processes
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.metadata.bootstrap import is_only_formatted
from pybroker.profiles.sizes import format_bytes
from pybroker.storage.dirs.directory_space import reserve_of
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.files.meta_properties import NODE_ID_KEYS, MetaProperties

_FEW_SHARE = 0.05
_FEW_INODES_SHARE = 0.02
#: With less nothing can be appended for long, whatever its share: a segment of the default size has 1 GiB.
_FULL_BYTES = 4 << 20
_PARTITIONS = "*-[0-9]*"
_METADATA_LOG = "__cluster_metadata-0"


def _usable(subject: Subject) -> Iterator[Finding]:
    """Directories that are missing, no directories, or not the broker's."""
    for path in subject.log_dirs:
        if _is_hidden(path):
            what = f"this user, {_user(os.geteuid())}, may not even look there"
            remedy = "run broker and doctor as its owner, or let that user into the directories above it (chmod o+x)"
            yield Finding(Severity.ERROR, "log-dir-not-writable", str(path), what, _OUT, remedy)
        elif not path.exists():
            yield from _missing(subject, path)
        elif not path.is_dir():
            what, remedy = "it is no directory", "set log.dirs to a directory, or move that file away"
            yield Finding(Severity.ERROR, "log-dir-no-directory", str(path), what, _OUT, remedy)
        elif os.statvfs(path).f_flag & os.ST_RDONLY:
            remedy = (
                "look into `dmesg` first: a file system that had errors is made read-only. Mend it, and mount it again "
                f"(mount -o remount,rw {_mount_point(path)})"
            )
            yield Finding(Severity.ERROR, "read-only", str(path), "its file system is read-only", _OUT, remedy)
        elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            what = f"this user, {_user(os.geteuid())}, may not write there: it belongs to {_user(path.stat().st_uid)}"
            remedy = f"run broker and doctor as that user, or `chown -R` {path} to the broker's"
            yield Finding(Severity.ERROR, "log-dir-not-writable", str(path), what, _OUT, remedy)
        else:
            yield from _owner(path)


_OUT = "what lies there is offline, and without the first log dir the broker does not start"


def _is_hidden(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _missing(subject: Subject, path: Path) -> Iterator[Finding]:
    others = [each for each in subject.log_dirs if (each / META_PROPERTIES).exists()]
    parent = next(each for each in path.absolute().parents if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK) or os.statvfs(parent).f_flag & os.ST_RDONLY:
        what = f"it does not exist, and this user, {_user(os.geteuid())}, may not make it in {parent}"
        remedy = f"make it (mkdir -p {path}) and give it to the broker's user"
        yield Finding(Severity.ERROR, "log-dir-missing", str(path), what, _OUT, remedy)
    elif others:
        what = f"it does not exist, though {others[0]} has been used: perhaps a disk is not mounted"
        why = "the broker makes a new, empty directory in its place, and what lay there is missing"
        remedy = "mount the disk before the broker starts; nothing, where the log dir is a new one"
        yield Finding(Severity.WARNING, "log-dir-missing", str(path), what, why, remedy)
    else:
        what, why = "it does not exist yet", "the first start of a broker makes it, for a new cluster"
        remedy = "nothing, for a new broker; else set log.dirs to where its data are"
        yield Finding(Severity.NOTE, "log-dir-new", str(path), what, why, remedy)


def _owner(path: Path) -> Iterator[Finding]:
    """Files that another user made, as by a start as root: root sees no harm in it, the broker's user cannot go on."""
    owner = path.stat().st_uid
    strangers = [each for each in sorted(path.iterdir()) if each.lstat().st_uid != owner and each.name != "lost+found"]
    if strangers:
        first = strangers[0]
        what = f"{len(strangers)} of its entries, such as {first.name}, belong to {_user(first.lstat().st_uid)}, the "
        why = f"a broker that runs as {_user(owner)} cannot write to them; a start as another user leaves such files"
        remedy = f"stop the broker, and `chown -R {_user(owner)} {path}`"
        yield Finding(Severity.WARNING, "log-dir-owner", str(path), what + f"log dir to {_user(owner)}", why, remedy)


def _room(subject: Subject) -> Iterator[Finding]:
    """Bytes and inodes that are left, once for each file system."""
    seen = set()
    for path in subject.log_dirs:
        if not path.is_dir() or path.stat().st_dev in seen:
            continue
        seen.add(path.stat().st_dev)
        status = os.statvfs(path)
        total_bytes, free_bytes = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        reserve_bytes = reserve_of(subject.config.get_int("pybroker.log.dir.reserve.bytes"), total_bytes)
        left = f"{format_bytes(free_bytes)} of {format_bytes(total_bytes)} are free on {_mount_point(path)}"
        remedy = (
            "enlarge the disk, add a log dir and move partitions there, or shorten retention of what may expire sooner"
        )
        if free_bytes < _FULL_BYTES:
            why = "nothing can be appended: producers are told KAFKA_STORAGE_ERROR until there is room"
            yield Finding(Severity.ERROR, "disk-full", str(path), f"the disk is full: {left}", why, remedy)
        elif free_bytes < reserve_bytes:
            what = f"less is free than the reserve of {format_bytes(reserve_bytes)}: {left}"
            why = "producers are told KAFKA_STORAGE_ERROR until half as much more than the reserve is free"
            lower = "; a lower pybroker.log.dir.reserve.bytes gives them what is left"
            yield Finding(Severity.ERROR, "disk-below-reserve", str(path), what, why, remedy + lower)
        elif free_bytes < _FEW_SHARE * total_bytes:
            why = "when it is full, nothing can be appended"
            yield Finding(
                Severity.WARNING, "disk-nearly-full", str(path), f"the disk is nearly full: {left}", why, remedy
            )
        if status.f_files and status.f_favail < _FEW_INODES_SHARE * status.f_files:
            is_out = status.f_favail == 0
            yield Finding(
                Severity.ERROR if is_out else Severity.WARNING,
                "inodes",
                str(path),
                f"{status.f_favail:,} of {status.f_files:,} inodes are left on {_mount_point(path)}",
                "each segment takes three files: without inodes none can be begun, though there are bytes",
                "move other files away from there, choose larger segments (segment.bytes), or move partitions to a log "
                "dir on a file system with more inodes",
            )


def _in_use(subject: Subject) -> Iterator[Finding]:
    """Log dirs that a broker has locked which is not this one."""
    for path, pid in subject.holders.items():
        if pid == subject.pid:
            continue
        who = f"process {pid} ({processes.command_of(pid)})" if pid > 0 else "a process of another container"
        ports = sorted({port for _, port in processes.listening(pid)}) if pid > 0 else []
        where = f", which listens on {', '.join(map(str, ports))}" if ports else ""
        yield Finding(
            Severity.ERROR,
            "log-dir-in-use",
            str(path),
            f"it is locked by {who}{where}, and not by a broker with these listeners",
            "two brokers cannot share a log dir: this one does not start",
            "stop that process, set log.dirs to another directory, or give the doctor the configuration of that broker",
        )


def _apart(subject: Subject) -> Iterator[Finding]:
    """Several log dirs are for several disks."""
    devices: dict[int, Path] = {}
    for path in subject.config.log_dirs:
        if not path.is_dir():
            continue
        other = devices.setdefault(path.stat().st_dev, path)
        if other == path:
            continue
        same = os.path.samefile(other, path)
        what = f"it is {other} by another name" if same else f"it lies on the same file system as {other}"
        why = "the broker takes one of the two for in use" if same else "together they are neither faster nor safer"
        remedy = "take one of them out of log.dirs" + ("" if same else ", or put it on a disk of its own")
        severity, kind = (Severity.ERROR, "log-dir-twice") if same else (Severity.ADVICE, "log-dirs-on-one-disk")
        yield Finding(severity, kind, str(path), what, why, remedy)


def _identity(subject: Subject) -> Iterator[Finding]:
    """meta.properties: of this node, of one cluster, in a version that can be read."""
    known: dict[Path, MetaProperties] = {}
    for path in subject.log_dirs:
        try:
            properties = MetaProperties.read(path) if path.is_dir() else None
        except StorageError as error:
            why = "the broker does not start: it would not know whose data these are"
            remedy = "restore the file from a backup"
            yield Finding(Severity.ERROR, "identity-damaged", str(path / META_PROPERTIES), str(error), why, remedy)
            continue
        if properties is not None:
            known[path] = properties
        elif path.is_dir() and any(each.is_dir() and each.name != _METADATA_LOG for each in path.glob(_PARTITIONS)):
            what = "it has partitions but no meta.properties"
            why = "the broker does not start: nothing says which node and cluster these are of"
            remedy = "restore meta.properties (another log dir of this broker has the same node.id and cluster.id)"
            yield Finding(Severity.ERROR, "identity-missing", str(path), what, why, remedy)
    yield from _same_owner(subject, known)


def _same_owner(subject: Subject, known: dict[Path, MetaProperties]) -> Iterator[Finding]:
    node_id = subject.config.node_id
    cluster: tuple[str, Path] | None = None
    directories: dict[bytes, Path] = {}
    for path, properties in known.items():
        place, start = str(path / META_PROPERTIES), "the broker does not start: "
        if properties.node_id != node_id:
            key = NODE_ID_KEYS[properties.version]
            what = f"it says {key}={properties.node_id}, and the setting node.id is {node_id}"
            why = start + "with the data of another node it would speak for it"
            remedy = f"set node.id={properties.node_id}, or log.dirs to this node's directory"
            yield Finding(Severity.ERROR, "foreign-node-id", place, what, why, remedy)
        cluster = cluster or (properties.cluster_id, path)
        if properties.cluster_id != cluster[0]:
            what = f"it is of cluster {properties.cluster_id}, and {cluster[1]} of cluster {cluster[0]}"
            why = start + "topics of the same name in two clusters are not the same topics"
            remedy = "take the log dir that does not belong here out of log.dirs"
            yield Finding(Severity.ERROR, "foreign-cluster-id", place, what, why, remedy)
        twin = directories.setdefault(properties.directory_id, path) if properties.has_directory_id else path
        if twin != path and not os.path.samefile(twin, path):
            what = f"it has the directory.id of {twin}: one is a copy of the other"
            why = start + "which of the two has the newest records nothing can say"
            yield Finding(Severity.ERROR, "copied-log-dir", place, what, why, "take the copy out of log.dirs")
    metadata_dir = subject.config.metadata_log_dir
    if subject.config.joins_quorum:
        return  # its controllers keep the metadata
    if known and not (metadata_dir / _METADATA_LOG).is_dir() and not is_only_formatted(metadata_dir, known):
        others = [each for each in subject.log_dirs if (each / _METADATA_LOG).is_dir()]
        yield Finding(
            Severity.ERROR,
            "metadata-missing",
            str(metadata_dir),
            f"it has no {_METADATA_LOG}" + (f", {others[0]} has" if others else ""),
            "the broker does not start: which topics there are is written there",
            f"set metadata.log.dir={others[0]}" if others else "restore it, or set metadata.log.dir to where it is",
        )


def _mount_point(path: Path) -> Path:
    return next(each for each in (path.absolute(), *path.absolute().parents) if os.path.ismount(each))


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


CHECKS = (_usable, _room, _in_use, _apart, _identity)
