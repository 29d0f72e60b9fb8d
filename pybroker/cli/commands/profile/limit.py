"""`pybroker profile limit`: how far a running broker is from what the machine can do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.broker_options import one_bootstrap_option
from pybroker.cli.common import EXIT_INTERRUPTED, address_of, fail
from pybroker.cli.profile.profile_options import make_console
from pybroker.cli.profile.profile_runs import load_measurement, measurement_option, run_with_bar
from pybroker.cli.tables import Title, print_cells, print_text

if TYPE_CHECKING:
    from pybroker.profiles.limit.run import PathLimit
    from pybroker.profiles.measurement.result import Measurement


@click.command(name="limit")
@one_bootstrap_option()
@measurement_option
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(0.1, 3600.0), help="How long to take."
)
@click.option("--durable", is_flag=True, help="With acknowledgements that wait for the disk (flush.messages=1).")
@click.option("--pid", type=int, help="The broker's process, instead of whoever listens on the port.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(
    bootstrap: str, measurement_path: Path | None, seconds: float, durable: bool, pid: int | None, as_json: bool
) -> None:
    """Load a broker on this machine, and hold what it does against what `pybroker profile measure` found.

    The paths: produce with batches of 256, 16 and 1 KiB, fetch of 1 MiB and 64 KiB, one request at a time. Topics are
    made for them and deleted afterwards; no path writes more than a sixteenth of what is free. Figures mean something
    only where nothing else runs.

    Exit status: 0, 1 when there is no measurement or the broker refuses, 130 after Ctrl-C.
    """
    from pybroker.native.errors import NativeError
    from pybroker.native.measure import Stop
    from pybroker.profiles.limit.connection import Connection, RefusedError
    from pybroker.profiles.limit.run import Limit

    _, measurement = load_measurement(measurement_path)
    host, port = address_of("--bootstrap-server", bootstrap.partition(",")[0].strip())
    stop = Stop()
    try:
        with Connection(host, port) as connection:
            limit = Limit(connection, measurement, stop, seconds=seconds, is_durable=durable, pid=pid)
            paths = run_with_bar(limit.run, stop)
    except KeyboardInterrupt:
        click.echo("pybroker: stopped", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (RefusedError, NativeError) as error:
        fail(f"{bootstrap}: {error}")
    except OSError as error:
        fail(f"{bootstrap}: {error.strerror or error}")
    if as_json:
        about = {"bootstrap": bootstrap, "is_durable": limit.is_durable, "measured_at": measurement.made_at}
        click.echo(json.dumps({**about, "paths": [each.as_dict() for each in paths]}, indent=2))
        return
    _print(paths, measurement)
    if limit.is_durable:
        click.echo("acknowledgements wait for the disk")
    if not limit.sees_process:
        click.echo(
            "CPU is not told: the broker's process is somebody else's; run as its user, or as root, or give --pid"
        )


def _print(paths: list[PathLimit], measurement: Measurement) -> None:

    console = make_console()
    names = ("path", "MB/s", "limit", "of it", "bound by", "CPU s/GB", "least", "of it", "p50 µs", "least", "of it")
    titles = [Title(name, is_number=name not in ("path", "bound by")) for name in names]
    rows = []
    for each in paths:
        figures, bound = each.figures, each.bound
        rows.append(
            [
                each.name,
                f"{figures.bytes_per_second / 1e6:,.0f}",
                "" if bound.bytes_per_second is None else f"{bound.bytes_per_second / 1e6:,.0f}",
                _percent(each.rate_share),
                bound.bound_by or "",
                _cost(each.cpu_seconds_per_gb),
                _cost(bound.cpu_seconds_per_gb),
                _percent(each.cpu_share),
                f"{figures.p50_us:,.0f}",
                "" if bound.p50_us is None else f"{bound.p50_us:,.0f}",
                _percent(each.latency_share),
            ]
        )
    print_cells(console, titles, rows)
    console.print()
    print_text(console, f"limits as measured at {measurement.made_at}; 100 % of one is this machine's best")
    for note in measurement.notes:
        print_text(console, f"note on that measurement: {note}", "yellow")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _cost(cpu_seconds_per_gb: float | None) -> str:
    return "" if cpu_seconds_per_gb is None else f"{cpu_seconds_per_gb:.3f}"
