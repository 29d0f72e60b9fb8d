"""Which profile a broker is started with, and why; what each of its keys becomes, and where that comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.profiles.document import ProfileDocument
from pybroker.profiles.keys import AUTO, HALF, PROFILE_KEYS, Setting
from pybroker.profiles.library import GENERIC, named_profile, shipped_profiles, tuned_profile
from pybroker.profiles.machine import Machine
from pybroker.profiles.matching import Fact, Rule, facts_of, rules_of
from pybroker.profiles.measured import Medium, measured_medium
from pybroker.values import Value

_TUNE = "run `pybroker profile tune` to have one made from what this machine measures"


class Candidate(Value):
    """A profile, held against a machine."""

    document: ProfileDocument
    rules: tuple[Rule, ...]

    @property
    def matches(self) -> bool:
        """Whether all its rules hold."""
        return all(rule.matches for rule in self.rules)


class Resolved(Value):
    """One key's value on this machine."""

    key: str
    value: Setting
    #: `explicit`, or the name of the profile that sets it.
    source: str
    #: The setting and where it was made, or the profile's file.
    place: str
    why: str


class Choice(Value):
    """The outcome: `settings` has every key of `PROFILE_KEYS`."""

    machine: Machine
    facts: dict[str, Fact]
    #: The medium by a saved measurement; None where nothing was measured.
    medium: Medium | None
    #: The class of machines this one belongs to; None for none that is known.
    recognised: ProfileDocument | None
    #: The profile that the broker names as its own. Another one than `recognised` where nobody has measured that class.
    profile: ProfileDocument
    candidates: tuple[Candidate, ...]
    settings: dict[str, Resolved]
    #: In sentences: how it came to `profile`.
    reason: str
    advice: str | None

    def as_dict(self) -> dict[str, Any]:
        """The same as objects of JSON."""
        return {
            "profile": self.profile.name,
            "recognised": None if self.recognised is None else self.recognised.name,
            "reason": self.reason,
            "advice": self.advice,
            "settings": {
                each.key: {"value": each.value, "source": each.source, "place": each.place, "why": each.why}
                for each in self.settings.values()
            },
            "candidates": [
                {
                    "profile": each.document.name,
                    "matches": each.matches,
                    "rules": [
                        {"fact": rule.fact, "wanted": rule.wanted, "found": rule.found, "matches": rule.matches}
                        for rule in each.rules
                    ],
                }
                for each in self.candidates
            ],
            "facts": self.facts,
            "measurement": None if self.medium is None else {"path": str(self.medium.path), "says": self.medium.why},
            "machine": self.machine.as_dict(),
        }


def choose(config: BrokerConfig, machine: Machine, root: Path = Path("/")) -> Choice:
    """The profile for a broker with this configuration on this machine. ConfigError when the one that was asked for
    does not exist or cannot be used."""
    medium = measured_medium(root, machine)
    facts = facts_of(machine, None if medium is None else medium.outranks)
    shipped = shipped_profiles()
    generic = next(document for document in shipped if document.name == GENERIC)
    tuned = tuned_profile(root)
    documents = [*([tuned] if tuned is not None else []), *(each for each in shipped if each.match)]
    candidates = tuple(Candidate(each, rules_of(each.match, facts)) for each in documents)
    recognised = next((each.document for each in candidates if each.matches), None)
    asked = config.get_str("pybroker.profile")
    wanted = (recognised or generic) if asked == AUTO else named_profile(asked, shipped)
    profile = wanted if wanted.settings else generic
    reason = _reason(asked, wanted, profile)
    held = Candidate(wanted, rules_of(wanted.match, facts))
    advice = _advice(asked, held, profile, candidates[0] if tuned is not None else None)
    settings = {key: _resolve(key, config, profile, generic) for key in PROFILE_KEYS}
    return Choice(machine, facts, medium, recognised, profile, candidates, settings, reason, advice)


def _reason(asked: str, wanted: ProfileDocument, profile: ProfileDocument) -> str:
    if asked != AUTO:
        chosen = f"pybroker.profile asks for {wanted.name}"
    elif wanted.name == GENERIC:
        return "the rules of no profile hold, so the defaults that are safe everywhere"
    else:
        chosen = f"the rules of {wanted.name} hold"
    if wanted is profile:
        return chosen
    return f"{chosen}, and nobody has measured such a machine yet, so the defaults that are safe everywhere"


def _advice(asked: str, wanted: Candidate, profile: ProfileDocument, tuned: Candidate | None) -> str | None:
    """Advice where a better profile may be had. `tuned` is the one that `auto` looks at first, if it is there."""
    meant = tuned if asked == AUTO and tuned is not None else wanted
    if not meant.matches:
        broken = ", ".join(rule.fact for rule in meant.rules if not rule.matches)
        where = meant.document.path or meant.document.name
        return f"{where} was made for another machine (other {broken}); {_TUNE}"
    is_generic = asked == AUTO and wanted.document.name == GENERIC
    return _TUNE if wanted.document is not profile or is_generic else None


def _resolve(name: str, config: BrokerConfig, profile: ProfileDocument, generic: ProfileDocument) -> Resolved:
    key = PROFILE_KEYS[name]
    explicit = key.explicit(config)
    if explicit is not None and key.setting is not None:
        place = config.origins.get(key.setting, "set while it ran")
        return Resolved(
            name, explicit, "explicit", f"{key.setting} ({place})", "an explicit setting wins over profiles"
        )
    document = profile if name in profile.settings else generic
    return Resolved(name, document.settings[name], document.name, str(document.path or ""), document.why.get(name, ""))


def reactor_count(choice: Choice) -> int:
    """`reactors` as a number: half is half of the CPUs' worth of time that this process may use."""
    asked = choice.settings["reactors"].value
    if asked != HALF:
        return int(asked)
    group = choice.machine.control_group
    usable = choice.machine.cpu.allowed_count
    if group.cpu_quota is not None:
        usable = min(usable, int(group.cpu_quota))
    return max(1, min(usable // 2, int(choice.settings["reactors_max"].value)))
