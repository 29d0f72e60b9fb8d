"""Leader epochs of the batches against leader-epoch-checkpoint (KIP-101). Pure, but for what it tells the report."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import PartitionFiles
from pybroker.storage.offline.partition_state import PartitionContext, PartitionState
from pybroker.storage.offline.text_files import EpochEntry


class EpochRun(NamedTuple):
    """Batches of one epoch, one behind the other: the first of them, and the offset behind the batch before it."""

    epoch: int
    first_offset: int
    end_of_previous: int
    position: int


def check_epochs(
    files: PartitionFiles,
    entries: list[EpochEntry] | None,
    runs: list[EpochRun],
    state: PartitionState,
    context: PartitionContext,
    is_damaged: bool,
    report: Report,
) -> None:
    """`entries` None: there is no file to compare with. `is_damaged`: batches are missing among the runs."""
    _check_runs(files, runs, report)
    if entries is None:
        return
    path = files.leader_epochs
    assert path is not None
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            first = f"epoch {before.epoch} from offset {before.start_offset}"
            text = f"epoch {entry.epoch} from offset {entry.start_offset} does not come after {first}"
            report.error("epoch-order", path, text, position=entry.position, offset=entry.start_offset)
            return
    if runs and runs[-1].epoch >= 0 and not entries and context.closed_cleanly:
        report.error("epoch-missing", path, f"it is empty, but there are batches of epoch {runs[-1].epoch}", position=0)
    starts = [entry.start_offset for entry in entries]
    for run in runs:
        if entries and run.epoch > entries[-1].epoch and not context.closed_cleanly:
            # The file is written some time after the batches; the next start makes it from them.
            text = f"it ends with epoch {entries[-1].epoch}, the log has epoch {run.epoch} from {run.first_offset} on"
            report.info("epochs-behind", path, text, offset=run.first_offset)
            continue
        _check_run(files, run, entries, starts, report)
    cleaned_below = context.cleaned_below if context.cleaned_below is not None else state.end_offset
    for number, entry in enumerate(entries):
        text = _wrong_entry(number, entries, runs, state, context.log_start, cleaned_below)
        if text and not is_damaged:
            report.error("epoch-start", path, text, position=entry.position, offset=entry.start_offset)


def _check_runs(files: PartitionFiles, runs: list[EpochRun], report: Report) -> None:
    for before, run in pairwise(runs):
        if run.epoch < before.epoch:
            text = f"the leader epoch goes back from {before.epoch} to {run.epoch}"
            path = _log_of(files, run.first_offset)
            report.error("epoch-order", path, text, position=run.position, offset=run.first_offset)


def _log_of(files: PartitionFiles, offset: int) -> Path:
    logs = files.logs
    return logs[max(bisect_right([base for base, _ in logs], offset) - 1, 0)][1]


def _check_run(
    files: PartitionFiles, run: EpochRun, entries: list[EpochEntry], starts: list[int], report: Report
) -> None:
    """The first batch of a run against the entry that covers its offset."""
    number = bisect_right(starts, run.first_offset) - 1
    # Entries below the log start offset are dropped, batches below it may still be in the first segment.
    said = entries[number].epoch if number >= 0 else None
    if said == run.epoch or not entries or (said is None and run.epoch <= entries[0].epoch) or run.epoch < 0:
        return
    there = f"epoch {said}" if said is not None else f"no epoch before {entries[0].epoch}"
    text = f"the batch has leader epoch {run.epoch}, leader-epoch-checkpoint says {there}"
    report.error("epoch", _log_of(files, run.first_offset), text, position=run.position, offset=run.first_offset)


def _wrong_entry(
    number: int,
    entries: list[EpochEntry],
    runs: list[EpochRun],
    state: PartitionState,
    log_start: int | None,
    cleaned_below: int,
) -> str:
    """Why an entry cannot be where it says; "" when it can."""
    entry = entries[number]
    run = next((run for run in runs if run.epoch == entry.epoch), None)
    start, end = log_start if log_start is not None else state.first_offset, state.end_offset
    if entry.start_offset > end:
        return f"epoch {entry.epoch} begins at offset {entry.start_offset}, the log ends at {end}"
    around = _run_across(runs, entry.start_offset, end)
    if around is not None and around.epoch != entry.epoch:
        return f"it says epoch {entry.epoch} from offset {entry.start_offset} on, the batches there have {around.epoch}"
    if number == 0:
        # Entries that begin below the log start offset are moved up to it, or were there from the beginning.
        beginnings = {start, state.first_offset} | ({run.first_offset} if run else {end})
        return "" if entry.start_offset in beginnings else _begins_elsewhere(entry, min(beginnings))
    if run is None:
        # A leader that wrote nothing, whose entry goes when the next leader begins at the same offset.
        last_without_batches = number == len(entries) - 1 and entry.start_offset == end
        if last_without_batches or entry.start_offset < cleaned_below:
            return ""
        return f"no batch has epoch {entry.epoch}"
    earliest = run.end_of_previous if run.end_of_previous >= 0 else state.first_offset
    if not earliest <= entry.start_offset <= run.first_offset:
        return _begins_elsewhere(entry, run.first_offset)
    return ""


def _run_across(runs: list[EpochRun], offset: int, end: int) -> EpochRun | None:
    """The run that began below `offset` and goes on at it."""
    for number, run in enumerate(runs):
        behind = runs[number + 1].end_of_previous if number + 1 < len(runs) else end
        if run.first_offset < offset < behind:
            return run
    return None


def _begins_elsewhere(entry: EpochEntry, offset: int) -> str:
    return f"epoch {entry.epoch} begins at offset {entry.start_offset} as it says, at {offset} as the log says"
