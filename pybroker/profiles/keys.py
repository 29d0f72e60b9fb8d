"""The keys that a profile can set. A key that is missing here is refused in every profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import ConfigValue, OneOf
from pybroker.values import Value

Setting = int | str
"""A value in a profile."""

HALF = "half"
AUTO = "auto"


class ProfileKey(Value):
    """One key of a profile's `[set]` table."""

    name: str
    documentation: str
    #: Completes the sentence "accepted: …".
    accepted: str
    accepts: Callable[[object], bool]
    #: The broker's setting that wins over the profile, and the value of it that leaves the choice to the profile.
    setting: str | None = None
    deferring: ConfigValue = None

    def explicit(self, config: BrokerConfig) -> Setting | None:
        """The broker's own setting, where it has one."""
        if self.setting is None or not config.is_set(self.setting):
            return None
        value = config.get(self.setting)
        return value if value != self.deferring and isinstance(value, int | str) else None


def _whole(minimum: int, maximum: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def append_engines() -> tuple[str, ...]:
    """Those that the broker's setting takes."""
    accepted = BROKER_KEYS["pybroker.append.engine"].validator
    assert isinstance(accepted, OneOf)
    return tuple(name for name in accepted.values if name != AUTO)


_TABLE = (
    ProfileKey(
        "reactors",
        "How many threads serve connections, or half: of the CPUs that the broker may use, at least one and at most "
        "reactors_max.",
        "half, or a whole number from 1 to 1024",
        lambda value: value == HALF or _whole(1, 1024)(value),
        "pybroker.reactors",
        0,
    ),
    ProfileKey(
        "reactors_max",
        "The most reactors that half of the CPUs may make.",
        "a whole number from 1 to 1024",
        _whole(1, 1024),
    ),
    ProfileKey(
        "spin_us",
        "How long a reactor looks for work before it sleeps, in µs; 0 sleeps at once.",
        "a whole number from 0 to 10000",
        _whole(0, 10_000),
        "pybroker.spin.us",
        -1,
    ),
    ProfileKey(
        "append_engine",
        "How appended bytes reach the disk.",
        " or ".join(append_engines()),
        lambda value: value in append_engines(),
        "pybroker.append.engine",
        AUTO,
    ),
    ProfileKey(
        "buffer_budget_bytes",
        "Memory for the receive buffers of all connections together, in bytes; at the bound, receiving waits.",
        f"a whole number from {1 << 20}",
        _whole(1 << 20, (1 << 63) - 1),
        "pybroker.buffer.budget.bytes",
    ),
    ProfileKey(
        "tail_ring_budget_bytes",
        "With the append engine direct: memory for the newest bytes of busy logs, in bytes; the logs beyond are paced.",
        "a whole number from 0",
        _whole(0, (1 << 63) - 1),
        "pybroker.tail.ring.budget.bytes",
    ),
)

PROFILE_KEYS: Mapping[str, ProfileKey] = {key.name: key for key in _TABLE}
