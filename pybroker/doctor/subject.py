"""`Subject`: what is examined. The configuration, where it is from, and the processes that have to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.doctor import processes
from pybroker.storage import directory_lock

Address = tuple[str, int]
_EVERY_HOST = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Subject:
    """One broker. `log_dirs` has that of the metadata too; `holders` says which process has a log dir locked."""

    config: BrokerConfig
    properties: str | None
    overrides: tuple[str, ...]
    #: What `--bootstrap` says; None without it.
    bootstrap: Address | None
    log_dirs: tuple[Path, ...]
    holders: Mapping[Path, int]
    #: The process of this broker; None where it does not run on this machine.
    pid: int | None

    @property
    def address(self) -> Address | None:
        """Where to ask the broker: --bootstrap, else its first listener that has a port of its own."""
        if self.bootstrap is not None:
            return self.bootstrap
        listener = next((each for each in self.config.listeners if each.port > 0), None)
        if listener is None:
            return None
        return ("127.0.0.1" if listener.host in _EVERY_HOST else listener.host), listener.port


def make_subject(
    config: BrokerConfig, properties: str | None, overrides: Sequence[str], bootstrap: Address | None
) -> Subject:
    """Find out which process the broker is. Reads /proc."""
    log_dirs = tuple(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    holders = {}
    for path in log_dirs:
        holder = directory_lock.holder(path)
        if holder is not None:
            holders[path] = holder
    return Subject(
        config,
        properties,
        tuple(overrides),
        bootstrap,
        log_dirs,
        holders,
        _own(config, bootstrap, set(holders.values())),
    )


def _own(config: BrokerConfig, bootstrap: Address | None, holders: set[int]) -> int | None:
    """The one among `holders` that listens where this broker would."""
    ports = {each.port for each in config.listeners if each.port > 0}
    if bootstrap is not None:
        ports.add(bootstrap[1])
    if not ports:
        return next(iter(holders)) if len(holders) == 1 else None
    return next((pid for pid in sorted(holders) if ports & {port for _, port in processes.listening(pid)}), None)
