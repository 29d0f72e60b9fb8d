"""Shared by `pybroker profile measure|tune|limit`: long runs with a bar, and saved measurements."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from pybroker.cli.common import fail

if TYPE_CHECKING:
    from pybroker.native.measure import Stop
    from pybroker.profiles.measurement.result import Measurement

_LOOK_SECONDS = 0.1

_T = TypeVar("_T")

measurement_option = click.option(
    "--measurement",
    "measurement_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What `pybroker profile measure` saved, instead of where it does so by itself.",
)


def load_measurement(path: Path | None) -> tuple[Path, Measurement]:
    """The measurement asked for, or the first saved one, and where it was. Ends the command when there is none."""
    from pybroker.profiles.library import measurement_paths
    from pybroker.profiles.measurement.result import MeasurementError, from_json

    paths = [path] if path is not None else measurement_paths(Path("/"))
    found = next((each for each in paths if path is not None or each.exists()), None)
    if found is None:
        fail("nothing was measured yet; run `pybroker profile measure` first")
    try:
        return found, from_json(found.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{found}: {error.strerror}")
    except (MeasurementError, UnicodeDecodeError) as error:
        fail(f"{found}: {error}")


def run_with_bar(run: Callable[[Callable[[str, float], None]], _T], stop: Stop) -> _T:
    """Run on a thread of its own, so that Ctrl-C is heard here and ends it; with a bar on a terminal. `run` is given
    what to tell of its progress: a name, and a share from 0 to 1."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:22}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with ThreadPoolExecutor(1) as pool:
        try:
            with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task("", total=1.0)
                return _result_of(
                    pool.submit(run, lambda name, share: bar.update(task, description=name, completed=share))
                )
        except BaseException:
            stop.set()  # before the pool waits for its thread
            raise


def _result_of(running: Future[_T]) -> _T:
    while True:
        try:
            return running.result(_LOOK_SECONDS)
        except FutureTimeoutError:
            if running.done():  # it was the run that timed out
                raise
