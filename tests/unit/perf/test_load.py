"""Lines of a load's process become intervals and a result, and its failures are told."""

import json
import sys
from typing import Any

import pytest

from pybroker.perf.load import Load, LoadFailed, RunningLoad
from pybroker.perf.report import warnings
from pybroker.perf.run import run_loads

LATENCY = {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 2.0, "p99.9": 2.0, "max": 2.0}
RESULT: dict[str, Any] = {
    "version": 1,
    "mode": "produce",
    "requests": 10,
    "mb_per_s": 5.0,
    "requests_per_s": 10.0,
    "latency_us": LATENCY,
    "histogram": [[3, 10]],
    "errors": {},
}


def interval(number: int) -> dict[str, Any]:
    counts = {"requests": 5, "records": 50, "payload_bytes": 2_000_000, "histogram": [[3, 5]]}
    return {"interval": number, "time_s": 100.0 + number, "seconds": 0.5, "latency_us": LATENCY, **counts}


def program(*lines: object, status: int = 0, errors: str = "") -> list[str]:
    """A command that prints these lines."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return [sys.executable, "-c", f"import sys; print({text!r}, end=''); sys.exit({errors!r} or {status})"]


def finish(command: list[str], **facts: Any) -> Load:
    return RunningLoad(Load("produce", command, facts), lambda *_: None).finish()


def test_intervals_and_the_result() -> None:
    load = finish(program(interval(0), interval(1), RESULT), payload_file="words")
    assert [each.start_s for each in load.intervals] == [100.0, 101.0]
    assert (load.intervals[0].mb_per_s, load.intervals[0].requests_per_s) == (4.0, 10.0)
    assert load.histogram.pairs() == [[3, 10]]
    assert load.result["payload_file"] == "words"
    assert Load.from_json(json.loads(json.dumps(load.as_json()))).as_json() == load.as_json()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (program(interval(0), errors="pbload: cannot connect"), "status 1: pbload: cannot connect"),
        (program(interval(0)), "status 0: it said nothing"),
        (program("no JSON", status=3), "status 3: no JSON"),
        (
            program({**RESULT, "errors": {"6": 2, "-1": 1, "250": 7, "malformed": 3, "empty": 4}}, status=1),
            r"NOT_LEADER_OR_FOLLOWER \(6\): 2, UNKNOWN_SERVER_ERROR \(-1\): 1, error code 250: 7, "
            "malformed answers: 3, answers without records, where there were some: 4",
        ),
    ],
)
def test_a_load_that_fails_says_why(command: list[str], told: str) -> None:
    with pytest.raises(LoadFailed, match=told):
        finish(command)


def test_one_that_fails_ends_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    endless = [sys.executable, "-c", "import time; time.sleep(60); print()"]
    loads = [Load("bad", program(status=2)), Load("good", endless)]
    with pytest.raises(LoadFailed, match="bad ended with status 2"):
        run_loads(loads, quiet=False)
    assert not loads[1].result
    assert not capsys.readouterr().err


def test_progress_tells_each_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_loads([Load("produce", program(interval(0), interval(1), RESULT))], quiet=False) is False
    first, second = capsys.readouterr().err.splitlines()
    assert "0.5 s" in first and "4.0 MB/s" in first and "10 requests/s" in first
    assert "1.5 s" in second


def test_a_rate_that_was_not_kept_is_told() -> None:
    load = Load("produce", [], result={**RESULT, "rate": 100.0, "unsent": 40})
    assert "40 that were due were never sent" in warnings(load)[0]
    load.result["unsent"] = 0
    assert not warnings(load)
