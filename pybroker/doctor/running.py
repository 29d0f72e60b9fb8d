"""The running broker: does it stand still, is it ready, what is offline, what does it run out of."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
from collections.abc import Iterator
from typing import Any

from pybroker.client.cluster import Address, Cluster
from pybroker.client.topics import describe
from pybroker.config.listeners import format_address, parse_address
from pybroker.config.topic import TopicConfig
from pybroker.doctor import processes
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import TIMEOUT_S, Subject
from pybroker.profiles.measurement.at_start import judge_log_dir
from pybroker.profiles.measurement.flush import SUSPICIOUS
from pybroker.protocol import messages as m
from pybroker.storage.offline.layout import LogDirFiles

_STOPPED = processes.STOPPED_STATES
_FULL_SHARE = 0.9
_OPEN_FILES_GOOD = 65_536
_OPEN_FILES_EACH = 3
#: Connections, and what the broker itself has open.
_OPEN_FILES_BASE = 2_048
_SAMPLE = re.compile(r"^(pybroker_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OFFLINE_WHY = "clients of these partitions get no answer but an error, until they have a leader"


def _answers(subject: Subject) -> Iterator[Finding]:
    """The process turns, and a client gets an answer."""
    pid, silence = subject.pid, subject.silence
    if silence is None:
        return
    if pid is None:
        remedy = "start the broker, or correct the address; `listeners` says where it listens"
        yield Finding(Severity.ERROR, "broker-unreachable", "--bootstrap-server", silence, _STILL, remedy)
    elif (stopped := processes.STOPPED_STATES.get(processes.state_of(pid))) is not None:
        what, remedy = f"it is {stopped}: no thread of it runs", f"let it go on: `kill -CONT {pid}`"
        yield Finding(Severity.ERROR, "broker-frozen", _process(pid), what, _STILL, remedy)
    else:
        remedy = (
            "wait, if it recovers: `systemctl status pybroker` or its log say how far it is. Else restart it; systemd "
            "does so by itself where the unit has WatchdogSec"
        )
        yield Finding(Severity.ERROR, "broker-not-answering", _process(pid), f"it runs, but {silence}", _STILL, remedy)


_STILL = "clients wait and fail"


def _ready(subject: Subject) -> Iterator[Finding]:
    """The answer of /ready."""
    answer = _ask(subject, "/ready")
    if answer is None or answer[0] == http.client.OK:
        return
    with contextlib.suppress(ValueError, TypeError, KeyError):
        for reason in json.loads(answer[1])["reasons"]:
            remedy = "wait while it starts or recovers; restart it when it cannot go on, or stands still"
            yield Finding(Severity.ERROR, "broker-not-ready", _where(subject), str(reason), _STILL, remedy)


def _offline(subject: Subject) -> Iterator[Finding]:
    """Partitions without leader, and log dirs that failed."""
    address = subject.address
    if address is None:
        return
    with Cluster([address], timeout_seconds=TIMEOUT_S) as cluster:
        topics = describe(cluster)
        dirs = cluster.call(m.DescribeLogDirsRequest(topics=[]))
    offline = [f"{topic.name}-{each.index}" for topic in topics for each in topic.partitions if each.leader < 0]
    if offline:
        more = f" and {len(offline) - 5} more" if len(offline) > 5 else ""
        what = f"{len(offline)} partitions have no leader: {', '.join(offline[:5])}{more}"
        remedy = (
            "bring the log dir or broker back that has them; `pybroker topics describe` shows which replicas. With too "
            "few file descriptors (open-files) raise the limit: the broker's log says so"
        )
        yield Finding(Severity.ERROR, "offline-partitions", format_address(*address), what, _OFFLINE_WHY, remedy)
    for each in dirs.results:
        if each.error_code != 0:
            what = "the broker has taken this log dir out of service"
            why = "what lies there is offline, since reading, writing or syncing it failed"
            remedy = "`dmesg` and the broker's log say why; mend the disk and restart the broker"
            yield Finding(Severity.ERROR, "log-dir-offline", each.log_dir, what, why, remedy)


def _descriptors(subject: Subject) -> Iterator[Finding]:
    """Open files against the limit: of the running broker, else of one that was started from here."""
    if subject.pid is not None:
        limit, used = processes.limit_of(subject.pid, "Max open files"), processes.open_file_count(subject.pid)
        most, place = (None if limit is None else limit.soft), _process(subject.pid)
    else:
        # A broker raises its limit to the hard one.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most, place, used = (None if hard == resource.RLIM_INFINITY else hard), "a broker that starts from here", None
    if most is None:
        return
    wanted = _OPEN_FILES_BASE + _OPEN_FILES_EACH * _partition_count(subject)
    is_full = used is not None and used >= _FULL_SHARE * most
    if is_full or most < _OPEN_FILES_GOOD:
        yield Finding(
            Severity.ERROR if is_full else Severity.WARNING if most < wanted else Severity.ADVICE,
            "open-files",
            place,
            f"it may have {most:,} open files" + ("" if used is None else f", and has {used:,}"),
            f"each connection takes one and each log {_OPEN_FILES_EACH} (about {wanted:,} with the logs here): "
            "without, connections are refused, partitions cannot be created, and some may be offline",
            "LimitNOFILE=1048576 in the unit, `* hard nofile 1048576` in /etc/security/limits.d/, or "
            "docker run --ulimit nofile=1048576",
        )


def _partition_count(subject: Subject) -> int:
    return sum(len(LogDirFiles.of(path).partitions) for path in subject.log_dirs if path.is_dir())


def _counted(subject: Subject) -> Iterator[Finding]:
    """The counts among the running broker's metrics that should be 0."""
    answer = _ask(subject, "/metrics")
    if answer is None or answer[0] != http.client.OK:
        return
    for name, labels, value in _SAMPLE.findall(answer[1].decode(errors="replace")):
        told = _COUNTED.get(name)
        if told is not None and float(value) > 0:
            of = ", ".join(f"{label} {text}" for label, text in _LABEL.findall(labels))
            kind, what, why, remedy = told
            yield Finding(
                Severity.WARNING, kind, of or _where(subject), what.format(count=int(float(value))), why, remedy
            )


#: By metric: kind, what, why, remedy.
_COUNTED = {
    "pybroker_scrub_findings_total": (
        "scrub-findings",
        "the scrub has found damage in {count} places of segments",
        "bytes have changed on the disk since they were written: those records cannot be read",
        "the broker's log names file and place; look for errors of the disk (`dmesg`, `smartctl -a`)",
    ),
    "pybroker_log_dir_flush_doubtful": (
        "unreal-flush",
        "flushes of this log dir do not reach a medium that keeps them without power",
        "a topic promises durable acknowledgements, and a power cut takes what was acknowledged",
        "put the log dir on a disk whose flushes are real; `pybroker profile measure` shows what they are",
    ),
    "pybroker_cleaner_uncleanable_logs": (
        "uncleanable-logs",
        "the log cleaner has given up on {count} logs",
        "they grow without bounds",
        "the broker's log says what is wrong with each; it is tried again after a restart",
    ),
}


def _unreal_flush(subject: Subject) -> Iterator[Finding]:
    """A stopped broker that would promise durability on a disk that keeps none. Tried on a file without name."""
    if subject.pid is not None or TopicConfig.resolve({}, subject.config).durability == "none":
        return
    for path in subject.config.log_dirs:
        if not path.is_dir():
            continue
        found = judge_log_dir(path, "epoll")
        if found.name in SUSPICIOUS:
            kind, _, why, remedy = _COUNTED["pybroker_log_dir_flush_doubtful"]
            yield Finding(Severity.WARNING, kind, str(path), found.why, why, remedy)


def _ask(subject: Subject, path: str) -> tuple[int, bytes] | None:
    """Status and body; None where nobody answers there, or it is not this broker."""
    address = _metrics_address(subject)
    if address is None or (subject.silence is not None and processes.state_of(subject.pid or 0) in _STOPPED):
        return None
    try:
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, UnicodeError, http.client.HTTPException):
        return None


def _metrics_address(subject: Subject) -> Address | None:
    """Where this broker's process really listens: the port may be another's."""
    address: Any = parse_address(subject.config.get_str("pybroker.metrics.listener"))
    if address is None or address[1] == 0 or subject.pid is None:
        return None
    return address if any(port == address[1] for _, port in processes.listening(subject.pid)) else None


def _where(subject: Subject) -> str:
    return "the broker" if subject.pid is None else _process(subject.pid)


def _process(pid: int) -> str:
    return f"process {pid}"


CHECKS = (_answers, _ready, _offline, _descriptors, _counted, _unreal_flush)
