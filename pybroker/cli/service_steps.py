"""Shared by `pybroker service install` and `uninstall`: options, and telling, asking, doing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pybroker.cli.common import fail

if TYPE_CHECKING:
    from pybroker.service.installation import Step

_Command = TypeVar("_Command", bound=Callable[..., Any])


def step_options(command: _Command) -> _Command:
    """--root, --dry-run and --yes, as `root`, `dry_run` and `yes`."""
    options = (
        root_option,
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.option("--yes", is_flag=True, help="Do it without asking."),
    )
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def root_option(command: _Command) -> _Command:
    """--root, as `root`."""
    return click.option(
        "--root",
        default="/",
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        help="Of an image that is being made: its files, and nothing of this machine.",
    )(command)


def tell_and_make(steps: Sequence[Step], *, dry_run: bool, yes: bool) -> bool:
    """Whether it was done. Ends the command when a step fails: it says which."""
    from pybroker.service.installation import StepFailed

    for step in steps:
        click.echo(f"  {step.told}")
    if dry_run or not (yes or click.confirm("Do this?")):
        return False
    for step in steps:
        try:
            step.make()
        except PermissionError as error:
            fail(f"{error.filename}: {error.strerror}; this needs root")
        except (OSError, StepFailed) as error:
            fail(f"{step.told}: {error}; what stands above it has been done, and can be done again")
    return True
