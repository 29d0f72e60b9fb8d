"""`pybroker perf flame`: where the CPU time of a running broker goes, Python and C in one flame graph."""

from __future__ import annotations

import sys
from pathlib import Path

import click

_EXIT_NO_SAMPLES = 3


@click.command(name="flame")
@click.option("--pid", type=click.IntRange(min=1), required=True, help="The broker's process id.")
@click.option("--seconds", type=click.IntRange(min=1, max=600), default=10, show_default=True)
@click.option(
    "--frequency", type=click.IntRange(min=1, max=999), default=99, show_default=True, help="Samples a second."
)
@click.option(
    "--native",
    is_flag=True,
    help="Show the C functions below Python's as well. py-spy then stops the process for every sample.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("flame.svg"), show_default=True)
def command(pid: int, seconds: int, frequency: int, native: bool, output: Path) -> None:
    """Sample a broker and draw where its CPU time went, a column for each thread.

    Linux's perf samples all threads: how wide a column is, and the stacks of threads that run C. py-spy samples the
    interpreter: the stacks of threads that run Python. Both have to be installed, and allowed to look at the process:
    as root, or for one's own with kernel.perf_event_paranoid <= 2 and kernel.yama.ptrace_scope = 0.

    Exit status: 0, 2 the command line is wrong, 3 no samples could be taken (the reason is on standard error).
    """
    from pybroker.cli.perf.flame_graph import svg
    from pybroker.cli.perf.flame_samples import Sampling, SamplingFailed, sample

    try:
        stacks = sample(Sampling(pid, seconds, frequency, native))
    except SamplingFailed as error:
        click.echo(f"pybroker perf flame: {error}", err=True)
        sys.exit(_EXIT_NO_SAMPLES)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(svg(stacks, f"pybroker, process {pid}: CPU time of {seconds} s"), encoding="utf-8")
    click.echo(f"{output}: {sum(stacks.values()) / frequency:.2f} s of CPU time in {seconds} s")
