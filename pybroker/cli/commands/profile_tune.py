"""`pybroker profile tune`: a profile for this machine, from what was measured on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from pybroker.cli.profile_options import make_console, make_table

if TYPE_CHECKING:
    from pybroker.profiles.document import ProfileDocument
    from pybroker.profiles.measurement.result import Measurement

_EXIT_FAILED = 1


@click.command(name="tune")
@click.option(
    "--measurement",
    "measurement_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What `pybroker profile measure` saved, instead of where it does so by itself.",
)
@click.option(
    "--output",
    default="profile.toml",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the profile.",
)
def command(measurement_path: Path | None, output: Path) -> None:
    """Write a profile for this machine from what `pybroker profile measure` found, with the reason for each key.

    The same measurement makes the same profile. Nothing is changed but the file; what is printed at the end says how a
    broker gets it. Needs no root.

    Exit status: 0, 1 when there is no measurement or the profile cannot be written.
    """
    from pybroker.profiles.document import format_document
    from pybroker.profiles.keys import PROFILE_KEYS, append_engines
    from pybroker.profiles.measurement.tune import tuned_profile_of
    from pybroker.storage.atomic import write_durably

    path, measurement = _load(measurement_path)
    document = tuned_profile_of(measurement, PROFILE_KEYS, append_engines())
    comment = (
        f"Made by `pybroker profile tune` from {path},\nmeasured by {measurement.made_by} at {measurement.made_at} on "
        f"{measurement.directory}."
    )
    try:
        write_durably(output, format_document(document, comment).encode())
    except OSError as error:
        _fail(f"{output}: {error.strerror}")
    _print(document, measurement, output.absolute())


def _load(path: Path | None) -> tuple[Path, Measurement]:
    """The measurement asked for, or the first saved one. Ends the command when there is none."""
    from pybroker.profiles.library import measurement_paths
    from pybroker.profiles.measurement.result import MeasurementError, from_json

    paths = [path] if path is not None else measurement_paths(Path("/"))
    found = next((each for each in paths if path is not None or each.exists()), None)
    if found is None:
        _fail("nothing was measured yet; run `pybroker profile measure` first")
    try:
        return found, from_json(found.read_text(encoding="utf-8"))
    except OSError as error:
        _fail(f"{found}: {error.strerror}")
    except (MeasurementError, UnicodeDecodeError) as error:
        _fail(f"{found}: {error}")


def _fail(text: str) -> NoReturn:
    click.echo(f"pybroker: {text}", err=True)
    sys.exit(_EXIT_FAILED)


def _print(document: ProfileDocument, measurement: Measurement, path: Path) -> None:
    from rich.markup import escape

    from pybroker.profiles.library import TUNED_PROFILE

    console = make_console()
    table = make_table("key", "value", "why")
    for key, value in document.settings.items():
        table.add_row(key, str(value), escape(document.why[key]))
    console.print(table)
    for note in measurement.notes:
        console.print(f"\n[yellow]note[/]: {escape(note)}")
    system = Path("/") / TUNED_PROFILE
    console.print(f"\nwritten to {escape(str(path))}. A broker gets it by either of")
    console.print(f"  pybroker.profile={escape(str(path))}   in its server.properties", soft_wrap=True)
    console.print(f"  sudo install -D -m 644 {escape(str(path))} {system}   (undo: sudo rm {system})", soft_wrap=True)
    console.print("and `pybroker profile detect` says then that it does.")
