"""Findings about the server.properties with which a broker of Apache Kafka ran, for one of pybroker in its place.

Reads the file. The answer includes the findings of `pybroker config check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.config.check import Severity as CheckSeverity
from pybroker.config.check import check
from pybroker.config.definition import ConfigError
from pybroker.doctor.finding import Finding, Severity
from pybroker.storage.files.meta_properties import MetaProperties


def settings(path: Path, properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    """The faults of the file itself, and of the file beside these log dirs."""
    idle: list[str] = []
    for each in check(path):
        place = f"{each.source}:{each.line}" if each.line is not None else str(path)
        if each.severity is CheckSeverity.ERROR:
            why = "the broker would not start with it"
            yield Finding(Severity.ERROR, "settings", place, each.text, why, "change it for pybroker")
        elif each.severity is CheckSeverity.WARNING:
            why = "it says what the broker does not do"
            yield Finding(Severity.WARNING, "settings", place, each.text, why, "see that nothing relies on it")
        else:
            idle += each.keys
    if idle:
        yield Finding(
            Severity.NOTE,
            "settings",
            str(path),
            f"nothing comes of {', '.join(sorted(set(idle)))}",
            f"`pybroker config check {path}` says why",
        )
    try:
        config = BrokerConfig.load(path)
    except ConfigError:
        return  # told above
    yield from _beside(config, path, properties)


def _beside(config: BrokerConfig, path: Path, properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    for log_dir, identity in properties.items():
        if identity.node_id != config.node_id:
            yield Finding(
                Severity.ERROR,
                "identity",
                str(log_dir),
                f"it belongs to node {identity.node_id}, and {path} has node.id={config.node_id}",
                "the broker would not start",
                "give the server.properties and the log dirs of one broker",
            )
    known = {each.resolve() for each in (*config.log_dirs, config.metadata_log_dir)}
    strangers = sorted(str(each) for each in properties if each.resolve() not in known)
    left_out = sorted(str(each) for each in known - {each.resolve() for each in properties})
    if strangers or left_out:
        what = [f"{', '.join(strangers)}: not in log.dirs"] if strangers else []
        what += [f"{', '.join(left_out)}: in log.dirs, and not looked at"] if left_out else []
        yield Finding(
            Severity.WARNING,
            "log-dirs",
            str(path),
            "; ".join(what),
            "what was looked at is not what the broker would open",
            "give all directories of log.dirs, and no others",
        )
