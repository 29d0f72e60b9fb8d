"""`pybroker profile measure`: what disk, CPU and loopback device do, found out by doing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import EXIT_INTERRUPTED, fail
from pybroker.cli.profile.profile_options import config_options, load_config, make_console
from pybroker.cli.profile.profile_runs import run_with_bar
from pybroker.cli.tables import Title, print_cells, print_text

if TYPE_CHECKING:
    from pybroker.profiles.measurement.result import Figures, Measurement

_FIGURES = [Title(name, is_number=True) for name in ("MB/s", "CPU s/GB", "CPU µs", "p50 µs", "p99 µs", "max µs")]
_SECTIONS = (
    ("disk", ("write.", "append.", "sync.", "read.")),
    ("CPU and memory", ("crc32c.", "copy")),
    ("loopback", ("round_trip.", "receive.", "send.")),
)


@click.command(name="measure")
@config_options
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Measure what this directory lies on, instead of the first of log.dirs.",
)
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(0.1, 3600.0), help="How long to take."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the JSON here, instead of where `detect`, `tune` and the broker look for it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON as well, instead of tables.")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    directory: Path | None,
    seconds: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure this machine: writes, syncs and reads of the disk under the first of log.dirs, CRC32C, memory, loopback.

    Figures mean something only where nothing else runs. A file of up to 1 GiB is written and extended by as much; it
    has no name, and nothing is left of it whatever happens. Needs no root.

    Exit status: 0, 1 when measuring failed, 2 when the configuration is not accepted, 130 after Ctrl-C.
    """
    from pybroker.native.errors import NativeError
    from pybroker.native.measure import Stop
    from pybroker.profiles.facts import read_machine
    from pybroker.profiles.measurement.result import MeasurementError
    from pybroker.profiles.measurement.run import Measuring

    config = load_config(properties, overrides)
    log_dirs = [directory] if directory is not None else list(config.log_dirs)
    measured = _existing(log_dirs[0])
    stop = Stop()
    measuring = Measuring(measured, read_machine(log_dirs), config.get_str("pybroker.io.backend"), seconds, stop)
    try:
        measurement = run_with_bar(measuring.run, stop)
        path = _save(measurement.to_json(), output)
    except KeyboardInterrupt:
        click.echo("pybroker: stopped; nothing is saved, and nothing is left behind", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (MeasurementError, NativeError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or measured}: {error.strerror}")
    if as_json:
        click.echo(measurement.to_json(), nl=False)
    else:
        _print(measurement)
    click.echo(f"saved as {path}", err=as_json)


def _existing(log_dir: Path) -> Path:
    """The directory itself, or where it would be made."""
    path = log_dir.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _save(text: str, output: Path | None) -> Path:
    from pybroker.profiles.library import SYSTEM_MEASUREMENT, user_measurement
    from pybroker.storage.files.atomic import write_durably
    from pybroker.storage.files.modes import READABLE_MODE

    if output is None:
        output = Path("/") / SYSTEM_MEASUREMENT if os.geteuid() == 0 else user_measurement()
        output.parent.mkdir(parents=True, exist_ok=True)
    write_durably(output, text.encode(), READABLE_MODE)
    return output


def _print(measurement: Measurement) -> None:
    from rich.markup import escape

    from pybroker.profiles.measurement.flush import SUSPICIOUS

    console = make_console()
    for section, prefixes in _SECTIONS:
        figures_of = {name: each for name, each in measurement.results.items() if name.startswith(prefixes)}
        rows = [[name, *_cells(each), f"[dim]{escape(each.what)}[/]"] for name, each in figures_of.items()]
        print_cells(console, [Title(section), *_FIGURES, Title("what", is_prose=True)], rows)
        console.print()
    print_text(console, f"medium: {measurement.medium.name}: {measurement.medium.why}")
    style = "bold red" if measurement.flush.name in SUSPICIOUS else ""
    print_text(console, f"flush: {measurement.flush.name}: {measurement.flush.why}", style)
    for note in measurement.notes:
        print_text(console, f"note: {note}", "yellow")


def _cells(figures: Figures) -> tuple[str, ...]:
    moves_bytes = figures.cpu_seconds_per_gb is not None
    return (
        f"{figures.bytes_per_second / 1e6:,.0f}" if moves_bytes else "",
        f"{figures.cpu_seconds_per_gb:.3f}" if moves_bytes else "",
        f"{figures.cpu_us_per_operation:,.2f}",
        *(f"{each:,.1f}" for each in (figures.p50_us, figures.p99_us, figures.max_us)),
    )
