"""`Subject`: what is examined. The configuration, where it is from, and the processes that have to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.client.cluster import Address, Cluster
from pybroker.client.errors import ClientError
from pybroker.config.broker import BrokerConfig
from pybroker.doctor import processes
from pybroker.storage.files import directory_lock

#: How long an answer may take.
TIMEOUT_S = 10.0
_EVERY_HOST = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Subject:
    """One broker. `log_dirs` has that of the metadata too; `holders` says which process has a log dir locked."""

    config: BrokerConfig
    properties: str | None
    overrides: tuple[str, ...]
    #: The address of `--bootstrap`; None without it.
    bootstrap: Address | None
    log_dirs: tuple[Path, ...]
    holders: Mapping[Path, int]
    #: The process of this broker; None where it does not run on this machine.
    pid: int | None
    #: Where it answers clients; None where nobody was asked, or `silence` says why there is no answer.
    address: Address | None
    silence: str | None


def make_subject(
    config: BrokerConfig, properties: str | None, overrides: Sequence[str], bootstrap: Address | None
) -> Subject:
    """Find out which process the broker is, and whether it answers. Reads /proc; waits for an answer for 10 s."""
    log_dirs = tuple(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    holders = {}
    for path in log_dirs:
        holder = directory_lock.holder(path)
        if holder is not None:
            holders[path] = holder
    pid = _own(config, bootstrap, set(holders.values()))
    address = _address(config, bootstrap) if pid is not None or bootstrap is not None else None
    silence = None if address is None else _silence(address, pid)
    return Subject(
        config,
        properties,
        tuple(overrides),
        bootstrap,
        log_dirs,
        holders,
        pid,
        address if silence is None else None,
        silence,
    )


def _address(config: BrokerConfig, bootstrap: Address | None) -> Address | None:
    """Where to ask: --bootstrap, else the first listener that has a port of its own."""
    listener = next((each for each in config.listeners if each.port > 0), None)
    if bootstrap is not None or listener is None:
        return bootstrap
    return ("127.0.0.1" if listener.host in _EVERY_HOST else listener.host), listener.port


def _silence(address: Address, pid: int | None) -> str | None:
    """Why there is no answer."""
    if pid is not None and processes.state_of(pid) in processes.STOPPED_STATES:
        return "no thread of the process runs"
    try:
        with Cluster([address], timeout_seconds=TIMEOUT_S) as cluster:
            cluster.metadata()
    except ClientError as error:
        return str(error)
    return None


def _own(config: BrokerConfig, bootstrap: Address | None, holders: set[int]) -> int | None:
    """The one among `holders` that listens where this broker would."""
    ports = {each.port for each in config.listeners if each.port > 0}
    if bootstrap is not None:
        ports.add(bootstrap[1])
    if not ports:
        return next(iter(holders)) if len(holders) == 1 else None
    return next((pid for pid in sorted(holders) if ports & {port for _, port in processes.listening(pid)}), None)
