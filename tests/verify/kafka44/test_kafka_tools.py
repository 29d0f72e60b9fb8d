"""Apache Kafka's command line tools give the same facts of this broker and of Apache Kafka: the same story to both."""

from __future__ import annotations

import difflib
import re
import sys
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "kafka"))

from tool_process import Tools
from tool_script import TOOLS, Side, Step, comparable_output, tool_script, write_inputs

from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool

_CATCH_UP_SECONDS = 60.0
_VERSIONS = (f"{TOOLS}BrokerApiVersionsCommand",)
_SERVED = re.compile(r"^\t(\w+\(\d+\): .+?),?$", re.MULTILINE)
#: Told so that a release can be raised feature by feature; the last version is served, too.
_LESS = {"UpdateFeatures(57): 0 to 1 [usable: 1]"}
_FEATURES = (f"{TOOLS}FeatureCommand", "describe")
_FEATURE = re.compile(r"^(Feature: .+?)\s+Epoch: \d+\s*$", re.MULTILINE)
_OVERRIDES = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def _run(tools: Tools, step: Step, side: Side) -> tuple[int, list[str]]:
    arguments = tuple(map(side.filled, step.arguments))
    if step.has_own_process:
        done = run_tool(step.tool, *arguments, check=False)
        # What a tool refuses it says on its standard error.
        status, output = done.returncode, (done.stderr if step.is_refused else done.stdout).decode()
    else:
        status, output = tools.ended(step.tool, *arguments)
    return comparable_output(step, side, status, output)


def _difference(tools: Tools, step: Step, ours: Side, kafkas: Side) -> str | None:
    own_status, own = _run(tools, step, ours)
    deadline = time.monotonic() + (_CATCH_UP_SECONDS if step.reads else 0)
    while True:
        status, lines = _run(tools, step, kafkas)
        if (own_status, own) == (status, lines):
            return None
        if time.monotonic() >= deadline:
            found = "\n".join(
                difflib.unified_diff(lines, own, f"Kafka, status {status}", f"pybroker, {own_status}", n=1)
            )
            return f"=== {step.name}\n{found}"
        time.sleep(0.2)


def test_tools_say_the_same_of_both(tmp_path: Path) -> None:
    with (
        KafkaBroker(tmp_path / "kafka", node_id=1, overrides=_OVERRIDES) as kafka,
        BrokerProcess(tmp_path / "own", overrides={"node.id": "1", **_OVERRIDES}) as own,
        closing(Tools(own.bootstrap)) as tools,
    ):
        ours = Side(own.bootstrap, tmp_path / "own", tmp_path / "own-files")
        kafkas = Side(kafka.bootstrap, tmp_path / "kafka", tmp_path / "kafka-files")
        for side in (ours, kafkas):
            write_inputs(side)
        found = [_difference(tools, step, ours, kafkas) for step in tool_script()]
        assert len(found) > 120
        differences = [each for each in found if each is not None]
        assert not differences, "\n".join(differences)
        for command, pattern in ((_VERSIONS, _SERVED), (_FEATURES, _FEATURE)):
            own_facts, kafkas_facts = (_facts(tools, side, command, pattern) for side in (ours, kafkas))
            assert own_facts, command
            assert own_facts <= kafkas_facts | _LESS, own_facts - kafkas_facts


def _facts(tools: Tools, side: Side, command: tuple[str, ...], pattern: re.Pattern[str]) -> set[str]:
    """APIs with their versions, or features with their levels: this broker has some of what Apache Kafka has. Features
    that are served and not in use are each broker's own affair."""
    status, output = tools.ended(command[0], "--bootstrap-server", side.bootstrap, *command[1:])
    assert status == 0, output
    facts = {found for found in pattern.findall(output) if "UNSUPPORTED" not in found}
    return {found for found in facts if not found.endswith("FinalizedVersionLevel: 0")}
