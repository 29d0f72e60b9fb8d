"""The broker's log: the standard library's loggers, written by structlog to standard error, one line per event."""

from __future__ import annotations

import logging
import sys


class _StructlogFormatter(logging.Formatter):
    """Formats through structlog, which takes long to import: that is done for the first line, not at start."""

    def __init__(self) -> None:
        super().__init__()
        self._structlog: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._structlog is None:
            self._structlog = _make_formatter()
        return self._structlog.format(record)


def _make_formatter() -> logging.Formatter:
    import structlog

    before: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
    )
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[remove, renderer])


def configure_logging(level: int = logging.INFO) -> None:
    """Send every logger's lines to standard error; colours only for a terminal. Once, at start."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_StructlogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
