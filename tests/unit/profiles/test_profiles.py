"""What a profile sets, and what wins over it."""

from __future__ import annotations

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.profiles import Profile, load_profile


def profile(*overrides: str) -> Profile:
    return load_profile(BrokerConfig.load(None, list(overrides)))


@pytest.mark.parametrize(("cpu_count", "reactor_count"), [(1, 1), (2, 1), (3, 1), (8, 4), (64, 4)])
def test_generic_takes_half_of_the_cpus(cpu_count: int, reactor_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpu_count)))
    assert profile() == Profile("generic", reactor_count, 50, "paced", 64 << 20)
    assert profile("pybroker.profile=generic") == profile()


def test_explicit_settings_win() -> None:
    chosen = profile("pybroker.reactors=3", "pybroker.spin.us=0", "pybroker.buffer.budget.bytes=2097152")
    assert (chosen.reactor_count, chosen.spin_us, chosen.buffer_budget_bytes) == (3, 0, 2 << 20)


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"toaster.*auto, generic"):
        profile("pybroker.profile=toaster")
