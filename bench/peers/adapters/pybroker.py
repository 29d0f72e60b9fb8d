"""pybroker of this checkout as a peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import COMMON_OVERRIDES, Broker, Peer, Site
from tests.harness.broker import BrokerProcess


def start(
    site: Site,
    *,
    backend: str = "auto",
    engine: str = "auto",
    name: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Peer:
    """Start a broker on that I/O backend, which names it where nothing else does, with that append engine."""
    name = name or ("pybroker" if backend == "auto" else f"pybroker-{backend}")
    own = {"pybroker.io.backend": backend, "pybroker.append.engine": engine}

    def broker(log_dir: Path, prefix: Sequence[str]) -> Broker:
        return BrokerProcess(log_dir, overrides={**COMMON_OVERRIDES, **own, **(overrides or {})}, command_prefix=prefix)

    return site.start(name, broker, facts)


def facts(broker: BrokerProcess) -> dict[str, str]:
    """The facts that its ready line tells."""
    ready = broker.ready
    return {
        "profile": ready.get("profile"),
        "io_backend": ready.get("io"),
        "append_engine": ready.get("engine"),
        "durability": ready.get("durability"),
        "buffers": ready.get("buffers"),
        "ready_line": ready.text,
    }
