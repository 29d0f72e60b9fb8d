"""Shared by every load of `pybroker perf`: build its commands, run them, print and save the figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.perf.perf_options import Address

if TYPE_CHECKING:
    from pybroker.perf.load import Load

_EXIT_FAILED = 1


@dataclass(frozen=True)
class Common:
    """The values of `common_options`."""

    bootstrap: Address
    topic: str
    partitions: int
    seconds: float
    warmup: float
    interval: float
    cpus: str | None
    output: Path | None
    as_json: bool
    report: Path | None
    hdr: Path | None
    quiet: bool

    def pinned(self, words: Sequence[str]) -> list[str]:
        """A command on the CPUs that were asked for."""
        if self.cpus is None:
            return list(words)
        if shutil.which("taskset") is None:
            raise click.UsageError("--cpus needs taskset, of the package util-linux")
        return ["taskset", "--cpu-list", self.cpus, *words]

    def generator(self, mode: str, *words: str) -> list[str]:
        """A command that runs pbload in `mode`, with intervals."""
        bounds = ["--seconds", f"{self.seconds:g}", "--warmup", f"{self.warmup:g}", "--interval", f"{self.interval:g}"]
        where = ["--topic", self.topic, "--partitions", str(self.partitions), *self.bootstrap.words()]
        return self.pinned([str(_generator()), mode, *where, *bounds, *words])

    def group(self, name: str, members: int, *, is_ours: bool = False) -> list[str]:
        """A command that runs the members of a consumer group, and deletes it afterwards if it is made for that."""
        words = [sys.executable, "-m", "pybroker.perf.group_consumers", "--bootstrap", self.bootstrap.text]
        bounds = ["--seconds", f"{self.seconds + self.warmup:g}", "--interval", f"{self.interval:g}"]
        bounds += ["--delete-group"] if is_ours else []
        return self.pinned([*words, "--topic", self.topic, "--group", name, "--members", str(members), *bounds])

    def prepare(self, mode: str, *words: str) -> None:
        """Run pbload before the clock starts."""
        from pybroker.perf import lifetime

        where = ["--topic", self.topic, "--partitions", str(self.partitions), *self.bootstrap.words()]
        command = [str(_generator()), mode, *where, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=lifetime.environment())
        if done.returncode != 0:
            _fail(f"{mode} before the load ended with status {done.returncode}: {done.stderr.strip()}")


def _generator() -> Path:
    from pybroker.perf.generator import GeneratorMissing, find_generator

    try:
        return find_generator()
    except GeneratorMissing as error:
        raise click.ClickException(str(error)) from None


def _fail(message: str) -> None:
    click.echo(f"pybroker perf: {message}", err=True)
    sys.exit(_EXIT_FAILED)


def measure(common: Common, loads: Sequence[Load]) -> None:
    """Run the loads side by side, then print and save. Ends with status 1 when one of them failed."""
    from pybroker.perf.load import LoadFailed
    from pybroker.perf.run import document, run_loads

    if common.report is not None:
        check_plots()  # before the load and not after it
    interrupted = False
    try:
        interrupted = run_loads(loads, quiet=common.quiet or common.as_json)
    except LoadFailed as error:
        _fail(str(error))
    result = document(loads, _context(common), interrupted)
    if common.output is not None:
        common.output.parent.mkdir(parents=True, exist_ok=True)
        common.output.write_text(json.dumps(result) + "\n")
    if common.hdr is not None:
        _write_hdr(loads, common.hdr)
    if common.as_json:
        click.echo(json.dumps(result))
    else:
        print_summary(loads)
    if common.report is not None:
        write_report(result, loads, common.report, quiet=common.as_json)


def _context(common: Common) -> dict[str, Any]:
    """This machine: the load's, and on loopback the broker's too."""
    from pybroker import __version__
    from pybroker.results.context import detect

    found = detect(Path.cwd(), Path(__file__).parent)
    return {
        "pybroker": __version__,
        "bootstrap": common.bootstrap.text,
        "commit": found.commit,
        "commit_time": found.commit_time,
        "hardware": found.hardware(),
        "options": {name: value for name, value in asdict(common).items() if isinstance(value, int | float | str)},
    }


def _write_hdr(loads: Sequence[Load], path: Path) -> None:
    from pybroker.perf.histogram import log_lines

    intervals = sorted(((load, each) for load in loads for each in load.intervals), key=lambda pair: pair[1].start_s)
    start_s = intervals[0][1].start_s if intervals else 0.0
    tagged = ((load.name, each.start_s, each.seconds, each.histogram) for load, each in intervals)
    path.write_text("\n".join(log_lines(start_s, tagged)) + "\n")


def print_summary(loads: Sequence[Load]) -> None:
    """A table on stdout, what to know about it on stderr."""
    from rich.markup import escape

    from pybroker.cli.profile.profile_options import make_console
    from pybroker.cli.tables import Title, print_cells
    from pybroker.perf.report import summary_cells, summary_columns, warnings

    titles = [Title(title, is_number=number > 0) for number, title in enumerate(summary_columns())]
    print_cells(make_console(), titles, [list(map(escape, summary_cells(load))) for load in loads])
    for note in (note for load in loads for note in warnings(load)):
        click.echo(note, err=True)


def check_plots() -> None:
    """A usage error when nothing can be drawn here."""
    from pybroker.perf.figures import PlotsMissing, new_figure

    try:
        new_figure()
    except PlotsMissing as error:
        raise click.UsageError(str(error)) from None


def write_report(result: dict[str, Any], loads: Sequence[Load], directory: Path, *, quiet: bool) -> None:
    """Draw and say where it is."""
    from pybroker.perf.report import write_report as write

    written = write(result, loads, directory)
    if not quiet:
        click.echo(f"{written[-1]}, and beside it {', '.join(path.name for path in written[:-1])}")
