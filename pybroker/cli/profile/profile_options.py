"""Shared by the commands of `pybroker profile`: options, reading the configuration, laying out text."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from pybroker.config.broker import BrokerConfig
    from pybroker.profiles.choice import Choice

_EXIT_BAD_CONFIG = 2
#: Where there is no terminal, nothing is broken into lines.
_WIDTH_OF_A_FILE = 400

_Command = TypeVar("_Command", bound=Callable[..., Any])


def config_options(command: _Command) -> _Command:
    """PROPERTIES and --override, as `properties` and `overrides`."""
    override = click.option(
        "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="As `pybroker serve` gets it."
    )
    return click.argument("properties", required=False, type=click.Path())(override(command))


def machine_options(command: _Command) -> _Command:
    """The same, and --root and --json, as `root` and `as_json`."""
    options = (
        config_options,
        click.option(
            "--root",
            default="/",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Look at /proc and /sys copied from another machine below this directory.",
        ),
        click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object."),
    )
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def load_config(properties: str | None, overrides: Sequence[str]) -> BrokerConfig:
    """That configuration. Ends the command when it is not accepted."""
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.definition import ConfigError

    try:
        return BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(_EXIT_BAD_CONFIG)


def load_choice(properties: str | None, overrides: Sequence[str], root: Path) -> Choice:
    """The profile for that configuration. Ends the command when configuration or profile are not accepted."""
    from pybroker.config.definition import ConfigError
    from pybroker.profiles import choose_here

    config = load_config(properties, overrides)
    try:
        return choose_here(config, root)
    except ConfigError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(_EXIT_BAD_CONFIG)


def make_console() -> Console:
    """A console of the terminal's width, or a wide one for a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)
