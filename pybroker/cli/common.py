"""Shared by the commands: how they end, and where a broker is."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def fail(text: str) -> NoReturn:
    """End the command."""
    click.echo(f"pybroker: {text}", err=True)
    sys.exit(EXIT_FAILED)


def address_of(option: str, value: str) -> tuple[str, int]:
    """Host and port that the option names. Ends the command when these are none."""
    from pybroker.config.listeners import parse_address

    address = parse_address(value)
    if address is None:
        fail(f"{option} {value}: accepted is HOST:PORT")
    return address
