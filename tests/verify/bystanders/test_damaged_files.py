"""Every kind of file in a log dir, damaged in every way, after a clean stop and after SIGKILL: the table of
docs/damaged-files.md."""

from __future__ import annotations

import pytest

from pybroker.testing.crash.power_disk import missing
from pybroker.testing.damage.harm import HARMS
from pybroker.testing.damage.matrix import PAGE, Case, is_fault, page_with, play, table
from pybroker.testing.damage.template import CLEAN, KILLED
from pybroker.testing.damage.verdict import Verdict

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
