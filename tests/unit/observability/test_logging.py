"""Lines of the log: as JSON, and as entries of a journal that is a socket of this test."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.observability import journal
from pybroker.observability.event_log import event
from pybroker.observability.log_limit import LimitedHandler
from pybroker.observability.logging import JsonFormatter, TextFormatter, configure_logging


def record(message: str, *, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    found = logging.LogRecord("pybroker.test", level, "/code.py", 7, message, (), None, "function")
    found.__dict__.update(fields)
    return found


def failed() -> logging.LogRecord:
    try:
        raise ValueError("broken")
    except ValueError:
        found = record("it failed", level=logging.ERROR)
        found.exc_info = sys.exc_info()
        return found


def decode(entry: bytes) -> dict[str, str]:
    """The other side of the protocol."""
    fields = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", rest)
            value, entry = rest[8 : 8 + length], rest[9 + length :]
        else:
            entry = rest
        fields[name.decode()] = value.decode()
    return fields


def test_text_lines_are_for_people() -> None:
    line = record("a roll", **event("roll", partition="t-0"))
    line.created = 1_700_000_000.25
    assert TextFormatter(coloured=False).format(line) == "2023-11-14T22:13:20.250Z [warning ] a roll [pybroker.test]"
    coloured = TextFormatter(coloured=True).format(line)
    assert coloured == "2023-11-14T22:13:20.250Z [\x1b[33mwarning \x1b[0m] a roll [pybroker.test]"
    first, *rest = TextFormatter(coloured=False).format(failed()).splitlines()
    assert first.endswith("[error   ] it failed [pybroker.test]")
    assert (rest[0], rest[-1]) == ("    Traceback (most recent call last):", "    ValueError: broken")


def test_a_client_writes_no_lines_of_its_own() -> None:
    """Names of clients and groups, and the reasons that members give, are any text."""
    line = record("group a\n2023-11-14T22:13:20.250Z [error   ] all is lost [pybroker]\r\x1b[2J\x9b\t\u00e9: empty")
    text = TextFormatter(coloured=False).format(line)
    assert text.splitlines() == [text]
    assert r"group a\n2023-11-14T22:13:20.250Z [error   ] all is lost [pybroker]\r\x1b[2J\x9b" in text
    assert "\t\u00e9: empty" in text


def test_json_lines_have_events_and_exceptions() -> None:
    line = json.loads(JsonFormatter().format(record("a roll", **event("roll", partition="t-0", offset=5))))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "pybroker.test",
        "message": "a roll",
        "event": "roll",
        "fields": {"partition": "t-0", "offset": 5},
    }
    assert "ValueError: broken" in json.loads(JsonFormatter().format(failed()))["exception"]


def test_the_journal_gets_fields(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        handler = journal.JournalHandler(path)
        handler.handle(record("a roll", **event("roll", partition="t-0", offset=5)))
        entry = decode(server.recv(65536))
        assert entry["MESSAGE"] == "a roll"
        assert entry["PRIORITY"] == "4"
        assert entry["SYSLOG_IDENTIFIER"] == "pybroker"
        assert (entry["CODE_FILE"], entry["CODE_LINE"], entry["CODE_FUNC"]) == ("/code.py", "7", "function")
        assert (entry["PYBROKER_EVENT"], entry["PYBROKER_PARTITION"], entry["PYBROKER_OFFSET"]) == ("roll", "t-0", "5")
        handler.handle(failed())
        entry = decode(server.recv(65536))
        assert entry["PRIORITY"] == "3"
        assert entry["MESSAGE"].startswith("it failed\nTraceback")
        assert "ValueError: broken" in entry["MESSAGE"]
        handler.handle(record("x" * 4_000_000))
        _, (descriptor,), _, _ = socket.recv_fds(server, 16, 1)
        with open(descriptor, "rb") as file:
            file.seek(0)
            assert decode(file.read())["MESSAGE"] == "x" * 4_000_000
        handler.close()


def test_what_python_prints_by_itself_goes_to_the_log(tmp_path: Path) -> None:
    script = """
import threading, warnings
from pybroker.observability.logging import configure_logging, log_what_python_prints

class Broken:
    def __del__(self):
        raise ValueError("\\x1b unraisable")

def fail():
    raise ValueError("x" * 100_000)

configure_logging()
log_what_python_prints()
warnings.warn("warned")
Broken()
thread = threading.Thread(target=fail, name="failing")
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stderr.splitlines()
    assert all(line[:4].isdigit() or line.startswith("    ") for line in lines)
    assert [text for text in lines if "warned" in text]
    assert r"\x1b unraisable" in done.stderr
    assert "thread failing ended by a defect" in done.stderr
    assert len(done.stderr) < 10_000


def test_the_journal_is_known_by_device_and_inode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert journal.is_standard_error()
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        assert not journal.is_standard_error()
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not journal.is_standard_error()


def test_without_a_journal_it_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(journal.JournalHandler.__init__, "__defaults__", (str(tmp_path / "none"),))
    before = logging.getLogger().handlers[:]
    with pytest.raises(FileNotFoundError):
        configure_logging(log_format="journal")
    assert logging.getLogger().handlers == before
    monkeypatch.setattr(journal, "is_standard_error", lambda: True)
    try:
        configure_logging()
        (handler,) = logging.getLogger().handlers
        assert isinstance(handler, LimitedHandler)
        assert type(handler.inner) is logging.StreamHandler, "nobody asked for one"
    finally:
        logging.getLogger().handlers[:] = before
