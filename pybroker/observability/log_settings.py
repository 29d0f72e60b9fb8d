"""Where the broker's log goes, and how much of it, as the configuration says: at start, and again at SIGHUP.

On the main thread. Lines held back by their level are not written, but `pybroker events` has their events all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import ConfigError
from pybroker.observability.logging import configure_logging

_FORMAT = "pybroker.log.format"
_LEVEL = "pybroker.log.level"
_ROOT = ""
_OURS = "pybroker"
_NUMBERS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LevelFilter(logging.Filter):
    """Lets a line through that is at the level of its logger, or of the nearest one above it that has one."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        name = record.name
        while name and name not in self._levels:
            name = name.rpartition(".")[0]
        return record.levelno >= self._levels[name]


def apply_log_settings(config: BrokerConfig, log_format: str | None) -> None:
    """Let the log be as `config` says, but for `log_format` if that is given. ConfigError when it cannot be had, and
    then nothing changes."""
    chosen = log_format or config.get_str(_FORMAT)
    try:
        configure_logging(log_format=chosen)
    except OSError as error:
        reason = f"{_FORMAT} cannot be {chosen}: no journal can be reached ({error.strerror})"
        raise ConfigError(f"{reason}; accepted: auto, text, json", _FORMAT).located(config.origins) from None
    _set_levels(_levels(config.get_list(_LEVEL)))


def reload_log_settings(
    running: BrokerConfig, properties: str | None, overrides: Sequence[str], log_format: str | None
) -> tuple[str, list[str]]:
    """Read the file again and apply the settings of the log alone. Returns their values in words, and the names of the
    other settings that differ from those `running` started with. ConfigError when the file is not accepted, and then
    nothing changes."""
    config = BrokerConfig.load(properties, overrides)
    apply_log_settings(config, log_format)
    levels = ",".join(config.get_list(_LEVEL))
    others = [name for name in BROKER_KEYS if name not in (_LEVEL, _FORMAT) and config.get(name) != running.get(name)]
    return f"{_LEVEL}={levels} {_FORMAT}={log_format or config.get_str(_FORMAT)}", others


def _levels(items: Sequence[str]) -> dict[str, int]:
    """Logger → level; the empty name is every other logger."""
    levels = {_ROOT: logging.INFO}
    for item in items:
        name, _, level = item.rpartition(":")
        levels[name] = _NUMBERS[level]
    return levels


def _set_levels(levels: Mapping[str, int]) -> None:
    """Loggers make what some handler may want, and the log's handler leaves out what it should not have: the events of
    `pybroker events` come through the loggers as well."""
    for name in list(logging.root.manager.loggerDict):
        if name == _OURS or name.startswith(f"{_OURS}."):
            logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(min(level, logging.INFO))
    for handler in logging.getLogger().handlers:
        handler.addFilter(LevelFilter(levels))
