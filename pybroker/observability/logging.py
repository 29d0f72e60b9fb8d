"""The broker's log: the standard library's loggers, one line per event.

Lines go to standard error, as text for people or as JSON for programs; to systemd's journal, with fields, where that is
what standard error is. The text is the standard library's: what a library for it takes to import, every start would.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime

from pybroker.observability.event_log import event_of
from pybroker.observability.standard_streams import STANDARD_ERROR, was_closed

FORMATS = ("auto", "text", "json", "journal")
"""`auto`: journal where standard error is systemd's journal, or was closed and there is a journal; else text."""


_COLOURS = {logging.DEBUG: "\x1b[32m", logging.INFO: "\x1b[32m", logging.WARNING: "\x1b[33m"}
_COLOUR_OF_ERRORS = "\x1b[31;1m"
_COLOUR_ENDS = "\x1b[0m"
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) != "\t"}


def one_line(text: str) -> str:
    """The text of a line without what would begin another one, or drive a terminal: a client chooses its own name, and
    that of its group, and must not write lines of its own into the log with them."""
    return text.translate(_CONTROLS)


class TextFormatter(logging.Formatter):
    """A line for people: time in UTC, level, message, logger; the exception below it."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def formatMessage(self, record: logging.LogRecord) -> str:
        time = _utc(record).isoformat(timespec="milliseconds").removesuffix("+00:00")
        level = f"{record.levelname.lower():<8}"
        if self._coloured:
            level = f"{_COLOURS.get(record.levelno, _COLOUR_OF_ERRORS)}{level}{_COLOUR_ENDS}"
        return f"{time}Z [{level}] {one_line(record.message)} [{record.name}]"


def _utc(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class JsonFormatter(logging.Formatter):
    """A line as one JSON object: time, level, logger, message; `event` and `fields` of an event; exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record).isoformat(timespec="milliseconds"),
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
    if log_format == "auto" and (journal.is_standard_error() or was_closed(STANDARD_ERROR)):
        with contextlib.suppress(OSError):  # out of a sandbox its socket may not be reached, though standard error is
            return journal.JournalHandler()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(coloured=sys.stderr.isatty()))
    return handler
