"""The running broker under load: MB/s, CPU s/GB and p99 of producers and a reader.

All loads of a commit are run once, in `setup_cache`, and the figures are taken from their results: a figure by itself
would start a broker by itself. Each is the median of the rounds, and in a round every setting has its turn, so that a
slow minute of the machine is not one setting's.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .attributes import attributes
from .broker import ROUNDS, SECONDS, Broker, NotStarted

_ENGINES, _BACKENDS, _DURABILITY = ("paced", "direct"), ("io_uring", "epoll"), ("none", "acks")
_BATCH_BYTES = (16384, 262144)
#: Payload of the load whose latency counts: well below what any setting can do.
_PACED_BYTES_PER_S = 40_000_000
_PROFILES = ("generic", "auto")
#: Every engine with every backend and durability, instead of one of them at a time that is not the usual one: twice as
#: many loads.
_EVERYTHING = os.environ.get("PYBROKER_ASV_EVERYTHING") == "1"
_TIMEOUT_SECONDS = 1800

#: By setting (and load); None where the commit's broker does not start with that setting.
Figures = dict[tuple[str, ...], dict[str, float] | None]


def _settings() -> Iterator[tuple[str, str, str]]:
    """Engine, backend and durability of each broker that is measured."""
    usual = (_ENGINES[0], _BACKENDS[0], _DURABILITY[0])
    for each in itertools.product(_ENGINES, _BACKENDS, _DURABILITY):
        if _EVERYTHING or sum(one != other for one, other in zip(each, usual, strict=True)) <= 1:
            yield each


def _overrides(engine: str, backend: str, durability: str) -> dict[str, str]:
    return {
        "pybroker.append.engine": engine,
        "pybroker.io.backend": backend,
        "pybroker.durability": durability,
    }


def _median(rounds: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    good = [each for each in rounds if each is not None]
    if not good:
        return None
    return {name: statistics.median(each[name] for each in good) for name in good[0]}


def _medians(rounds: Sequence[Figures]) -> Figures:
    return {key: _median([each.get(key) for each in rounds]) for key in rounds[0]}


def _produce(broker: Broker, batch_bytes: int) -> dict[str, float]:
    """Closed loop for the throughput and its cost, open loop for the latency."""
    words = ("produce", "--batch-bytes", str(batch_bytes), "--topic", f"produce-{batch_bytes}")
    fast = broker.load(*words, "--connections", "2", "--in-flight", "5", "--seconds", str(SECONDS))
    rate = str(_PACED_BYTES_PER_S // batch_bytes)
    paced = broker.load(*words, "--connections", "2", "--rate", rate, "--seconds", str(SECONDS))
    return {
        "mb_per_s": fast["mb_per_s"],
        "cpu_s_per_gb": fast["cpu_seconds"] / (fast["payload_bytes"] / 1e9),
        "p99_us": paced["latency_us"]["p99"],
    }


def _fetch(broker: Broker) -> dict[str, float]:
    words = ("fetch", "--topic", f"produce-{_BATCH_BYTES[-1]}", "--connections", "2", "--max-bytes", "1m")
    result = broker.load(*words, "--seconds", str(SECONDS))
    return {
        "mb_per_s": result["mb_per_s"],
        "cpu_s_per_gb": result["cpu_seconds"] / (result["payload_bytes"] / 1e9),
    }


def _measure(name: tuple[str, ...], overrides: Mapping[str, str]) -> Figures:
    keys = [*((*name, str(batch_bytes)) for batch_bytes in _BATCH_BYTES), (*name, "fetch")]
    try:
        broker = Broker(overrides)
    except NotStarted as error:
        print(f"{name}: {error}")
        return dict.fromkeys(keys)
    with broker:
        produced = [_produce(broker, batch_bytes) for batch_bytes in _BATCH_BYTES]
        return dict(zip(keys, [*produced, _fetch(broker)], strict=True))


def _run(settings: Mapping[tuple[str, ...], Mapping[str, str]]) -> Figures:
    """Overrides by setting. The medians of the rounds."""
    rounds: list[Figures] = []
    for _ in range(ROUNDS):
        figures: Figures = {}
        for name, overrides in settings.items():
            figures |= _measure(name, overrides)
        rounds.append(figures)
    return _medians(rounds)


def _figure(cache: Figures, key: tuple[str, ...], figure: str) -> float:
    found = cache.get(key)
    if found is None:
        raise NotImplementedError(f"{key}: not measured, or this commit's broker does not start with it")
    return found[figure]


class _Settings:
    """The usual engine, backend and durability, and each other one beside the usual ones."""

    timeout = _TIMEOUT_SECONDS

    @attributes(timeout=_TIMEOUT_SECONDS)
    def setup_cache(self) -> Figures:
        """Run everything."""
        return _run({each: _overrides(*each) for each in _settings()})


class Produce(_Settings):
    """Producers with two connections and batches of that size."""

    params = (_ENGINES, _BACKENDS, _DURABILITY, _BATCH_BYTES)
    param_names = ("engine", "backend", "durability", "batch_bytes")

    def setup(self, cache: Figures, *setting: Any) -> None:
        """Leave out what this commit does not have."""
        _figure(cache, tuple(map(str, setting)), "mb_per_s")

    @attributes(unit="MB/s")
    def track_throughput(self, cache: Figures, *setting: Any) -> float:
        """Five requests in flight on each connection."""
        return _figure(cache, tuple(map(str, setting)), "mb_per_s")

    @attributes(unit="CPU s/GB")
    def track_cpu(self, cache: Figures, *setting: Any) -> float:
        """The broker's CPU time for that."""
        return _figure(cache, tuple(map(str, setting)), "cpu_s_per_gb")

    @attributes(unit="us")
    def track_p99(self, cache: Figures, *setting: Any) -> float:
        """At 40 MB/s, counted from when a request was to be sent."""
        return _figure(cache, tuple(map(str, setting)), "p99_us")


class Fetch(_Settings):
    """Two readers of what was produced last, a MiB at a time."""

    params = (_ENGINES, _BACKENDS, _DURABILITY)
    param_names = ("engine", "backend", "durability")

    def setup(self, cache: Figures, *setting: Any) -> None:
        """Leave out what this commit does not have."""
        _figure(cache, (*setting, "fetch"), "mb_per_s")

    @attributes(unit="MB/s")
    def track_throughput(self, cache: Figures, *setting: Any) -> float:
        """One request in flight on each connection."""
        return _figure(cache, (*setting, "fetch"), "mb_per_s")

    @attributes(unit="CPU s/GB")
    def track_cpu(self, cache: Figures, *setting: Any) -> float:
        """The broker's CPU time for that."""
        return _figure(cache, (*setting, "fetch"), "cpu_s_per_gb")


class Profile:
    """Hardware profiles, everything else as they set it."""

    params = (_PROFILES, _BATCH_BYTES)
    param_names = ("profile", "batch_bytes")
    timeout = _TIMEOUT_SECONDS

    @attributes(timeout=_TIMEOUT_SECONDS)
    def setup_cache(self) -> Figures:
        """Run everything."""
        return _run({(profile,): {"pybroker.profile": profile} for profile in _PROFILES})

    def setup(self, cache: Figures, profile: str, batch_bytes: int) -> None:
        """Leave out what this commit does not have."""
        _figure(cache, (profile, str(batch_bytes)), "mb_per_s")

    @attributes(unit="MB/s")
    def track_throughput(self, cache: Figures, profile: str, batch_bytes: int) -> float:
        """Throughput of the producers, as in Produce."""
        return _figure(cache, (profile, str(batch_bytes)), "mb_per_s")

    @attributes(unit="CPU s/GB")
    def track_cpu(self, cache: Figures, profile: str, batch_bytes: int) -> float:
        """The broker's CPU time for that."""
        return _figure(cache, (profile, str(batch_bytes)), "cpu_s_per_gb")
