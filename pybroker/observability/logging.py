"""The broker's log: the standard library's loggers, one line per event.

Lines go to standard error, for people by structlog or as JSON for programs; to systemd's journal, with fields, where
that is what standard error is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime

from pybroker.observability.event_log import event_of

FORMATS = ("auto", "text", "json", "journal")
"""`auto`: journal where standard error is systemd's journal, else text."""


class _StructlogFormatter(logging.Formatter):
    """Formats through structlog, which takes long to import: that is done for the first line, not at start."""

    def __init__(self) -> None:
        super().__init__()
        self._structlog: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._structlog is None:
            self._structlog = _make_formatter()
        return self._structlog.format(record)


class JsonFormatter(logging.Formatter):
    """A line as one JSON object: time, level, logger, message; `event` and `fields` of an event; exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = event_of(record)
        if event is not None:
            line["event"], line["fields"] = event[0], dict(event[1])
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


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


def configure_logging(level: int = logging.INFO, log_format: str = "auto") -> None:
    """Send every logger's lines where `log_format`, one of FORMATS, says; colours only for a terminal. At start, and to
    begin anew. OSError when there is no journal to send them to; then nothing changes."""
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [_make_handler(log_format)]
    for handler in before:
        handler.close()
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _make_handler(log_format: str) -> logging.Handler:
    from pybroker.observability import journal

    if log_format == "journal":
        return journal.JournalHandler()
    if log_format == "auto" and journal.is_standard_error():
        with contextlib.suppress(OSError):  # out of a sandbox its socket may not be reached, though standard error is
            return journal.JournalHandler()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else _StructlogFormatter())
    return handler
