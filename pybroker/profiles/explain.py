"""Where one key's value on this machine comes from, and what other profiles say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pybroker.profiles.choice import Choice, reactor_count
from pybroker.profiles.document import ProfileDocument
from pybroker.profiles.keys import HALF, PROFILE_KEYS, Setting


@dataclass(frozen=True, slots=True)
class Explanation:
    """One key, explained for one machine."""

    key: str
    documentation: str
    accepted: str
    #: The broker's setting that wins over profiles; None where there is none.
    setting: str | None
    value: Setting
    #: The value that the broker derives from a word such as `auto`.
    effect: str | None
    source: str
    place: str
    why: str
    #: The settings of each shipped profile.
    profiles: dict[str, Setting]

    def as_dict(self) -> dict[str, Any]:
        """The same as an object of JSON."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """The same in words: a name and a text for each."""
        wins = "nothing" if self.setting is None else self.setting
        others = ", ".join(f"{name} {value}" for name, value in self.profiles.items())
        return [
            (self.key, self.documentation),
            ("  here", str(self.value) if self.effect is None else f"{self.value}, which is {self.effect} here"),
            ("  from", f"{self.source}: {self.place}" if self.source != "explicit" else self.place),
            ("  why", self.why or "the profile does not say"),
            ("  accepted", self.accepted),
            ("  wins over it", wins),
            ("  profiles", others),
        ]


def find_keys(asked: str) -> list[str]:
    """The keys that a name stands for: of a profile, or of the broker's setting over it; `all` is every one."""
    return [name for name, key in PROFILE_KEYS.items() if asked in ("all", name, key.setting)]


def explain(choice: Choice, name: str, shipped: Sequence[ProfileDocument]) -> Explanation:
    """The key `name` of `PROFILE_KEYS`, as `choice` and the shipped profiles have it."""
    key, resolved = PROFILE_KEYS[name], choice.settings[name]
    return Explanation(
        key=name,
        documentation=key.documentation,
        accepted=key.accepted,
        setting=key.setting,
        value=resolved.value,
        effect=str(reactor_count(choice)) if resolved.value == HALF else None,
        source=resolved.source,
        place=resolved.place,
        why=resolved.why,
        profiles={each.name: each.settings[name] for each in shipped if name in each.settings},
    )
