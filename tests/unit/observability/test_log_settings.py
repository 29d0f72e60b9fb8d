"""Level and format of the log as settings, and read again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.observability import journal
from pybroker.observability.event_log import EventLog, event
from pybroker.observability.log_settings import apply_log_settings, reload_log_settings

STORAGE = logging.getLogger("pybroker.storage.test_log_settings")
OTHER = logging.getLogger("pybroker.server.test_log_settings")


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("pybroker", "pybroker.storage", "pybroker.native"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, ["pybroker.log.format=json", *overrides])


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the two loggers write at each level."""
    capsys.readouterr()
    for logger in (STORAGE, OTHER):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logger.log(level, "%s %s", logger.name.split(".")[1], logging.getLevelName(level).lower())
    return [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize(
    ("levels", "storage", "server"),
    [
        ("info", "info warning error", "info warning error"),
        ("warning", "warning error", "warning error"),
        ("error,pybroker.storage:debug", "debug info warning error", "error"),
        ("debug, pybroker.storage:error", "error", "debug info warning error"),
        ("pybroker:warning", "warning error", "warning error"),
    ],
)
def test_levels(levels: str, storage: str, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    apply_log_settings(config(f"pybroker.log.level={levels}"), None)
    expected = [f"storage {level}" for level in storage.split()] + [f"server {level}" for level in server.split()]
    assert written(capsys) == expected


def test_read_again_nothing_of_before_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text("pybroker.log.level=error,pybroker.storage:debug\npybroker.log.format=json\n")
    running = BrokerConfig.load(path)
    reload_log_settings(running, str(path), (), None)
    assert written(capsys)[0] == "storage debug"
    path.write_text("pybroker.log.level=warning\npybroker.log.format=text\n")
    told = reload_log_settings(running, str(path), (), "json")
    assert told == ("pybroker.log.level=warning pybroker.log.format=json", [])
    assert written(capsys) == ["storage warning", "storage error", "server warning", "server error"]


def test_a_file_that_is_not_accepted_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply_log_settings(config("pybroker.log.level=error"), None)
    path = tmp_path / "server.properties"
    path.write_text("pybroker.log.level=debug\nnum.partitions=0\n")
    with pytest.raises(ConfigError, match=r"Invalid value 0 for configuration num\.partitions"):
        reload_log_settings(config(), str(path), (), None)
    assert written(capsys) == ["storage error", "server error"]


def test_settings_that_need_a_restart_are_named(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.retention.hours=24\n")
    running = BrokerConfig.load(path)
    path.write_text("num.partitions=3\nlog.retention.hours=24\ncompression.type=zstd\npybroker.log.level=debug\n")
    _, others = reload_log_settings(running, str(path), (), None)
    assert sorted(others) == ["compression.type", "num.partitions"]


def test_a_journal_that_is_not_there_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply_log_settings(config("pybroker.log.level=error"), None)
    monkeypatch.setattr(journal.JournalHandler.__init__, "__defaults__", (str(tmp_path / "absent"),))
    with pytest.raises(ConfigError, match=r"pybroker\.log\.format cannot be journal: no journal can be reached"):
        apply_log_settings(config(), "journal")
    assert written(capsys) == ["storage error", "server error"]


def test_events_are_kept_whatever_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    apply_log_settings(config("pybroker.log.level=error"), None)
    events = EventLog()
    logging.getLogger("pybroker").addHandler(events)
    try:
        OTHER.info("a roll", extra=event("roll", partition="t-0"))
    finally:
        logging.getLogger("pybroker").removeHandler(events)
    assert capsys.readouterr().err == ""
    assert events.counts()["roll"] == 1


@pytest.mark.parametrize("text", ["loud", "info,info", "info,pybroker.storage", "pybroker.storage:", ":info", ""])
def test_levels_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value .*for configuration pybroker\.log\.level"):
        config(f"pybroker.log.level={text}")
