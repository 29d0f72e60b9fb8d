"""The broker's log: the standard library's loggers, one line per event.

Lines go to standard error, as text for people or as JSON for programs; to systemd's journal, with fields, where that is
what standard error is. The text is the standard library's: what a library for it takes to import, every start would.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from datetime import UTC, datetime

from pybroker.observability.event_log import event_of
from pybroker.observability.log_bounds import bounded_fields, one_line, traceback_of
from pybroker.observability.log_limit import LimitedHandler
from pybroker.observability.standard_streams import STANDARD_ERROR, was_closed

logger = logging.getLogger(__name__)

FORMATS = ("auto", "text", "json", "journal")
"""`auto`: journal where standard error is systemd's journal, or was closed and there is a journal; else text."""


_COLOURS = {logging.DEBUG: "\x1b[32m", logging.INFO: "\x1b[32m", logging.WARNING: "\x1b[33m"}
_COLOUR_OF_ERRORS = "\x1b[31;1m"
_COLOUR_ENDS = "\x1b[0m"
_INDENT = "    "


class TextFormatter(logging.Formatter):
    """A line for people: time in UTC, level, message, logger; the traceback below it, indented so that no text in it
    can pass for a line of the log."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        lines = (traceback_of(record) or "").splitlines()
        return "".join((self.formatMessage(record), *(f"\n{_INDENT}{line}" for line in lines)))

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
            line["event"], line["fields"] = event[0], bounded_fields(event[1])
        if (exception := traceback_of(record)) is not None:
            line["exception"] = exception
        return json.dumps(line)


def configure_logging(level: int = logging.INFO, log_format: str = "auto") -> None:
    """Send every logger's lines where `log_format`, one of FORMATS, says; colours only for a terminal. At start, and to
    begin anew. Lines are bounded in length, and in number per kind and peer. OSError when there is no journal to send
    them to; then nothing changes."""
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [LimitedHandler(_make_handler(log_format))]
    for handler in before:
        handler.close()
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def log_what_python_prints() -> None:
    """Send to the log what the interpreter would print beside it, without any bound: warnings, and exceptions that end
    a thread or that nobody can catch. For a process that is a broker and nothing else."""
    logging.captureWarnings(True)
    threading.excepthook = _on_thread_end
    sys.unraisablehook = _on_unraisable


def _on_thread_end(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit or ended.exc_value is None:
        return
    name = None if ended.thread is None else ended.thread.name
    logger.critical("thread %s ended by a defect", name, exc_info=ended.exc_value)


def _on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    text = unraisable.err_msg or "exception ignored in"
    # The object's own words may fail, or be long; its type says enough.
    logger.error("%s: %s", text, type(unraisable.object).__name__, exc_info=unraisable.exc_value)


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
