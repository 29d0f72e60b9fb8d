"""`pybroker profile tune`: a profile for this machine, from what was measured on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail
from pybroker.cli.profile.profile_options import make_console
from pybroker.cli.profile.profile_runs import load_measurement, measurement_option
from pybroker.cli.tables import Title, print_cells, print_text

if TYPE_CHECKING:
    from pybroker.profiles.document import ProfileDocument
    from pybroker.profiles.measurement.result import Measurement


@click.command(name="tune")
@measurement_option
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
    from pybroker.storage.files.atomic import write_durably
    from pybroker.storage.files.modes import READABLE_MODE

    path, measurement = load_measurement(measurement_path)
    document = tuned_profile_of(measurement, PROFILE_KEYS, append_engines())
    comment = (
        f"Made by `pybroker profile tune` from {path},\nmeasured by {measurement.made_by} at {measurement.made_at} on "
        f"{measurement.directory}."
    )
    try:
        write_durably(output, format_document(document, comment).encode(), READABLE_MODE)
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    _print(document, measurement, output.absolute())


def _print(document: ProfileDocument, measurement: Measurement, path: Path) -> None:
    from rich.markup import escape

    from pybroker.profiles.library import TUNED_PROFILE

    console = make_console()
    titles = [Title("key"), Title("value"), Title("why", is_prose=True)]
    rows = [[key, escape(str(value)), escape(document.why[key])] for key, value in document.settings.items()]
    print_cells(console, titles, rows)
    for note in measurement.notes:
        console.print()
        print_text(console, f"note: {note}", "yellow")
    system = Path("/") / TUNED_PROFILE
    console.print(f"\nwritten to {escape(str(path))}. A broker gets it by either of", soft_wrap=True)
    console.print(f"  pybroker.profile={escape(str(path))}   in its server.properties", soft_wrap=True)
    console.print(f"  sudo install -D -m 644 {escape(str(path))} {system}   (undo: sudo rm {system})", soft_wrap=True)
    console.print("and `pybroker profile detect` says then that it does.")
