"""Every kind of file in a log dir, damaged in every way, after a clean stop and after SIGKILL: the table of
docs/damaged-files.md."""

from __future__ import annotations

import pytest

from tests.harness.crash.power_disk import missing
from tests.harness.damage.harm import HARMS
from tests.harness.damage.matrix import PAGE, Case, is_fault, page_with, play, table
from tests.harness.damage.template import CLEAN, KILLED
from tests.harness.damage.verdict import Verdict

FEWEST_KINDS = 30


def test_no_damage_is_passed_over_in_silence() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    found: dict[Case, Verdict] = {}
    faults: list[str] = []
    for case, verdict in play():
        found[case] = verdict
        if is_fault(case, verdict):
            faults.append(f"{case}: {verdict.word}\n{verdict.output[-2000:]}")
    assert {case.stop for case in found} == {CLEAN, KILLED}
    assert {case.harm for case in found} == set(HARMS)
    assert len({case.kind for case in found}) >= FEWEST_KINDS
    assert not faults, "\n\n".join(faults)
    text = PAGE.read_text()
    assert page_with(table(found), text) == text, "the page has another table: --write makes it anew"
