"""Apache Kafka as a peer: the release from Maven Central, with the collector and the heap of its own start script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import COMMON_OVERRIDES, Broker, Peer, Site
from tests.harness.kafka import KAFKA_VERSION, KafkaBroker

HEAP_MEGABYTES = 1024
JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# The session with the controller, which is in the same process, has to outlast that both are stopped (`Peer.frozen`).
SESSION = {"broker.session.timeout.ms": "600000"}


def start(
    site: Site,
    *,
    name: str = "kafka",
    overrides: Mapping[str, str] | None = None,
    heap_megabytes: int = HEAP_MEGABYTES,
) -> Peer:
    """Format a log dir and start a broker that is its own controller."""

    def broker(log_dir: Path, prefix: Sequence[str]) -> Broker:
        return KafkaBroker(
            log_dir,
            overrides={**COMMON_OVERRIDES, **SESSION, **(overrides or {})},
            heap_megabytes=heap_megabytes,
            java_options=(f"-Xms{heap_megabytes}m", *JAVA_OPTIONS),
            command_prefix=prefix,
        )

    return site.start(name, broker, lambda _: {"version": KAFKA_VERSION})
