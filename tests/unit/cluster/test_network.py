"""Which bridge a cluster gets while others are being made, with an `ip` that keeps its devices in a list."""

from __future__ import annotations

import pytest

from pybroker.cluster import network
from pybroker.cluster.errors import ClusterError


class Machine:
    """What `ip` sees and does; another program makes the bridges `sooner` just before we would."""

    def __init__(self, sooner: set[str], *, may_make: bool = True) -> None:
        self.devices: list[str] = []
        self._sooner = sooner
        self._may_make = may_make

    def ip(self, *words: str) -> str:
        """The commands that are asked for; what they change besides links is left out."""
        if words[:3] == ("-o", "link", "show"):
            return "".join(f"{number}: {name}: <UP>\n" for number, name in enumerate(self.devices))
        if words[:2] == ("link", "add") and words[-1] == "bridge":
            if words[2] in self._sooner and words[2] not in self.devices:
                self.devices.append(words[2])
            if words[2] in self.devices or not self._may_make:
                raise ClusterError("`ip link add` failed, which takes root: RTNETLINK answers: File exists")
            self.devices.append(words[2])
        return ""


def machine(monkeypatch: pytest.MonkeyPatch, sooner: set[str], *, may_make: bool = True) -> Machine:
    made = Machine(sooner, may_make=may_make)
    monkeypatch.setattr(network, "_ip", made.ip)
    return made


def test_a_bridge_that_somebody_makes_sooner_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = machine(monkeypatch, {"pbc0", "pbc1"})
    assert network.make_network(2).bridge == "pbc2"
    assert ours.devices == ["pbc0", "pbc1", "pbc2"]


def test_who_may_make_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = machine(monkeypatch, set(), may_make=False)
    with pytest.raises(ClusterError, match="takes root"):
        network.make_network(2)
    assert ours.devices == []
