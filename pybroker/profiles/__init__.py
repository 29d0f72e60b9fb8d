"""Hardware profiles: what a class of machines sets, read from `hw-profiles/<name>.toml` or a file of one's own.

Read once at start. Explicit settings (`pybroker.reactors`, ...) win over the profile. `facts` reads the machine,
`choice` finds the profile that fits it, and `pybroker profile` shows both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.profiles.choice import Choice, choose, reactor_count
from pybroker.profiles.facts import read_machine
from pybroker.profiles.machine import Machine

__all__ = ["HISTORY_SHARE", "Profile", "choose_here", "load_profile"]

HISTORY_SHARE = 8
"""One part in so many of the memory is for history that has been read, unless a setting says otherwise."""
_UNKNOWN_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings that the data plane starts with on this machine."""

    name: str
    reactor_count: int
    spin_us: int
    append_engine: str
    buffer_budget_bytes: int
    tail_ring_budget_bytes: int
    history_cache_bytes: int
    #: For the broker's log: why it is this profile, and what one may do about it.
    notes: tuple[str, ...] = field(default=(), compare=False)


def load_profile(config: BrokerConfig, root: Path = Path("/")) -> Profile:
    """The profile that `pybroker.profile` names (auto: the one that matches this machine), with the explicit settings
    on top. ConfigError when there is no such profile, or its file cannot be used."""
    machine = _read_machine(config, root)
    choice = choose(config, machine, root)
    values = {name: each.value for name, each in choice.settings.items()}
    reason = f"profile {choice.profile.name}: {choice.reason}"
    return Profile(
        name=choice.profile.name,
        reactor_count=reactor_count(choice),
        spin_us=int(values["spin_us"]),
        append_engine=str(values["append_engine"]),
        buffer_budget_bytes=int(values["buffer_budget_bytes"]),
        tail_ring_budget_bytes=int(values["tail_ring_budget_bytes"]),
        history_cache_bytes=_history_cache_bytes(config, _memory_bytes(machine)),
        notes=(reason,) if choice.advice is None else (reason, choice.advice),
    )


def _history_cache_bytes(config: BrokerConfig, memory_bytes: int) -> int:
    """Never more than half of the memory: what the broker holds the kernel cannot take for others."""
    wanted = config.get_int("pybroker.history.cache.bytes") or memory_bytes // HISTORY_SHARE
    return min(wanted, memory_bytes // 2)


def _memory_bytes(machine: Machine) -> int:
    """The memory that the broker may use: all there is, or less by its control group."""
    group = machine.control_group
    known = (machine.memory.total_bytes, group.memory_max_bytes, group.memory_high_bytes)
    return min((each for each in known if each is not None), default=_UNKNOWN_MEMORY_BYTES)


def choose_here(config: BrokerConfig, root: Path = Path("/")) -> Choice:
    """The same with all reasons, for the machine below `root`. ConfigError."""
    return choose(config, _read_machine(config, root), root)


def _read_machine(config: BrokerConfig, root: Path) -> Machine:
    return read_machine(config.log_dirs, root, Path(config.get_str("pybroker.tail.ring.directory")))
