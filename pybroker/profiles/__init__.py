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

__all__ = ["Profile", "choose_here", "load_profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the data plane is started with on this machine."""

    name: str
    reactor_count: int
    spin_us: int
    append_engine: str
    buffer_budget_bytes: int
    tail_ring_budget_bytes: int
    #: For the broker's log: why it is this profile, and what one may do about it.
    notes: tuple[str, ...] = field(default=(), compare=False)


def load_profile(config: BrokerConfig, root: Path = Path("/")) -> Profile:
    """The profile that `pybroker.profile` names (auto: the one that matches this machine), with the explicit settings
    on top. ConfigError when there is no such profile, or its file cannot be used."""
    choice = choose_here(config, root)
    values = {name: each.value for name, each in choice.settings.items()}
    reason = f"profile {choice.profile.name}: {choice.reason}"
    return Profile(
        name=choice.profile.name,
        reactor_count=reactor_count(choice),
        spin_us=int(values["spin_us"]),
        append_engine=str(values["append_engine"]),
        buffer_budget_bytes=int(values["buffer_budget_bytes"]),
        tail_ring_budget_bytes=int(values["tail_ring_budget_bytes"]),
        notes=(reason,) if choice.advice is None else (reason, choice.advice),
    )


def choose_here(config: BrokerConfig, root: Path = Path("/")) -> Choice:
    """The same with all reasons, for the machine below `root`. ConfigError."""
    rings = Path(config.get_str("pybroker.tail.ring.directory"))
    return choose(config, read_machine(config.log_dirs, root, rings), root)
