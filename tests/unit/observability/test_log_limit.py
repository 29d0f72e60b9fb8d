"""Floods of lines, by peers and by loops, with a clock that these tests move."""

from __future__ import annotations

import ast
import io
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

import pybroker
from pybroker.observability import log_limit
from pybroker.observability.event_log import event, event_of
from pybroker.observability.log_limit import (
    ALIKE_LINES,
    KIND_LINES,
    PEER_LINES,
    WINDOW_S,
    LimitedHandler,
    LineLimit,
    caused_by,
    current_peer,
    subject_of,
)
from pybroker.observability.logging import TextFormatter

#: Packages of commands and tools, which print what they are asked for.
NOT_IN_A_BROKER = {"bench", "cli", "cluster", "doctor", "perf", "profiles", "protocol", "results", "testing"}
#: Modules that print when they are run by themselves.
TOOLS = {"server/observe/catalogue.py"}
PRINTING = {
    "print",
    "sys.stderr.write",
    "sys.stdout.write",
    "traceback.print_exc",
    "traceback.print_exception",
    "logging.basicConfig",
    "logging.StreamHandler",
    "logging.FileHandler",
    "click.echo",
}


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [each.getMessage() for each in self.records]


class Log:
    """A logger of its own, with a limit."""

    def __init__(self) -> None:
        self.now_s = 0.0
        #: Of the timers that were started.
        self.started: list[float] = []
        self.limit = LineLimit(lambda: self.now_s)
        self.limit.serving = True
        self.kept = Kept()
        self.handler = LimitedHandler(self.kept, self.limit)
        self.logger = logging.Logger("pybroker.test")
        self.logger.addHandler(self.handler)

    def failed_checkpoint(self, attempt: int, path: str = "/data") -> None:
        self.logger.error("%s: the checkpoint failed, attempt %d", path, attempt)

    def malformed(self, peer: str, client_id: str = "c") -> None:
        self.logger.warning("client %s: malformed request", client_id, extra=caused_by(peer))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def summaries(self) -> list[str]:
        return [text for text in self.kept.texts if " more like this in the last " in text]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    class NoTimer(threading.Timer):
        def start(self) -> None:
            made.started.append(self.interval)

    monkeypatch.setattr(log_limit.threading, "Timer", NoTimer)
    made = Log()
    yield made
    made.handler.close()


def test_a_loop_that_fails_every_8_ms_is_told_of_some_times_a_minute(log: Log) -> None:
    for attempt in range(15_360):
        log.failed_checkpoint(attempt)
        log.wait(1 / 128)
    errors = [text for text in log.kept.texts if text not in log.summaries()]
    assert len(errors) == 2 * ALIKE_LINES
    assert errors[0] == "/data: the checkpoint failed, attempt 0"
    assert log.summaries()[0] == (
        f"{7_680 - ALIKE_LINES:,} more like this in the last 60 s: /data: the checkpoint failed, attempt {ALIKE_LINES}"
    )
    assert log.limit.left_out_counts["error"] == 15_360 - 2 * ALIKE_LINES


def test_a_peer_hides_neither_another_peer_nor_another_kind(log: Log) -> None:
    for number in range(5_000):
        log.malformed("10.0.0.1", f"{number} " + "x" * 32_000)
    log.malformed("10.0.0.2")
    log.logger.error("the disk is full")
    assert len(log.kept.records) == PEER_LINES + 2
    assert log.kept.texts[-2:] == ["client c: malformed request", "the disk is full"]
    log.wait(WINDOW_S)
    log.logger.info("something else")
    (summary,) = log.summaries()
    assert summary.startswith(
        f"{5_000 - PEER_LINES:,} more like this in the last 60 s (10.0.0.1: 4,940): client 60 xxx"
    )
    assert sum(map(len, log.kept.texts)) < (PEER_LINES + 2) * 1_200


def test_lines_that_differ_in_more_than_numbers_all_appear(log: Log) -> None:
    for number in range(100):
        log.failed_checkpoint(1, f"/data-{number}")
        log.logger.info("t-%d: segment of %s", number, "a" * number)
    assert len(log.kept.records) == 200


def test_a_kind_is_bounded_over_all_peers_and_at_the_start_over_none(log: Log) -> None:
    for number in range(5_000):
        log.malformed(f"10.0.{number // 256}.{number % 256}")
    assert len(log.kept.records) == KIND_LINES
    log.limit.serving = False
    for number in range(5_000):
        log.logger.error("%s: records were lost", f"topic-{number}")
    assert len(log.kept.records) == KIND_LINES + 5_000


def test_memory_is_bounded_whatever_is_logged(log: Log) -> None:
    for number in range(20_000):
        log.malformed(f"peer {number}")
        log.logger.error("made of values: %s", f"text {number} " * 100)
        log.logger.error(f"made of values: {number}")
    assert len(log.limit._kinds) == 3
    assert all(len(kind.shown) + len(kind.left_out) <= 2 * KIND_LINES for kind in log.limit._kinds.values())


def test_kinds_are_bounded_as_well(log: Log) -> None:
    for number in range(10_000):
        log.logger.error(f"template {number} of %s", "a library")
    assert len(log.limit._kinds) <= 1025


def test_the_peer_is_that_of_the_request_under_way(log: Log) -> None:
    def handle(peer: str) -> None:
        current_peer.set(peer)
        for number in range(100):
            log.logger.info("group %s is made", f"{number}-{'ab'[number % 2]}")

    for peer in ("10.0.0.1", "10.0.0.2"):
        copy_context().run(handle, peer)
    assert len(log.kept.records) == 2 * PEER_LINES
    for number in range(100):
        log.logger.info("group %s is made", f"{number}-c{number}")
    assert len(log.kept.records) == 2 * PEER_LINES + 100


def test_the_summary_comes_by_itself_and_at_the_end(log: Log) -> None:
    for attempt in range(20):
        log.failed_checkpoint(attempt)
    assert log.started == [WINDOW_S]
    log.wait(WINDOW_S)
    log.handler._on_timer()
    assert len(log.summaries()) == 1
    for attempt in range(20):
        log.failed_checkpoint(attempt)
    log.wait(5)
    log.handler.close()
    assert log.summaries()[1].startswith("10 more like this in the last 5 s: /data: the checkpoint failed")
    assert log.kept.records[-1].levelno == logging.ERROR


def test_a_timer_of_its_own_tells_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    class Telling(Kept):
        def emit(self, record: logging.LogRecord) -> None:
            super().emit(record)
            if "more like this" in record.getMessage():
                told.set()

    monkeypatch.setattr(log_limit, "WINDOW_S", 0.2)
    handler = LimitedHandler(Telling(), LineLimit())
    logger = logging.Logger("pybroker.test")
    logger.addHandler(handler)
    for _ in range(ALIKE_LINES + 1):
        logger.error("again")
    assert told.wait(10)
    handler.close()


def test_a_summary_is_no_event(log: Log) -> None:
    for _ in range(ALIKE_LINES + 1):
        log.logger.info("a roll", extra=event("roll", partition="t-0"))
    log.wait(WINDOW_S)
    log.logger.info("something else")
    assert [event_of(each) is None for each in log.kept.records] == [False] * ALIKE_LINES + [True, True]


def test_lines_alike_differ_in_numbers_only() -> None:
    same: list[Callable[[int], str]] = [
        lambda n: f"took {n} ms",
        lambda n: f"10.0.0.1:{n} refused",
        lambda n: f"{n}.5 s",
        lambda n: f"offset {n}, error {n}",
    ]
    assert all(subject_of("", each(1)) == subject_of("", each(12_345)) for each in same)
    different: list[Callable[[int], str]] = [
        lambda n: f"t-{n} failed",
        lambda n: f"/data{n}/x",
        lambda n: f"10.0.0.{n}",
    ]
    assert all(subject_of("", each(1)) != subject_of("", each(2)) for each in different)
    assert subject_of("10.0.0.1", "a") == subject_of("10.0.0.1", "b")


def test_four_clients_of_malformed_requests_write_a_bounded_log() -> None:
    """74 MB a second, once."""
    out = io.StringIO()
    stream = logging.StreamHandler(out)
    stream.setFormatter(TextFormatter(coloured=False))
    log = Log()
    log.logger.handlers[:] = [LimitedHandler(stream, log.limit)]
    for number in range(20_000):
        log.malformed(f"10.0.0.{number % 4}", "\x1b\n" * 16_000)
    assert len(out.getvalue()) < 4 * PEER_LINES * 6_000


def test_nothing_in_the_broker_writes_past_the_log() -> None:
    """What is printed, or logged by a logger with a handler of its own, would have no bound."""
    package = Path(pybroker.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        place = path.relative_to(package)
        if place.parts[0] in NOT_IN_A_BROKER or str(place) in TOOLS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING:
                found.append(f"{place}:{node.lineno}: {ast.unparse(node.func)}")
    (stream,) = found
    assert re.fullmatch(r"observability/logging.py:\d+: logging.StreamHandler", stream), "where lines go in the end"
