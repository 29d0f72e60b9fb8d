"""`pybroker`: the command line. Commands are imported when they are called, so that each starts fast."""

from __future__ import annotations

import importlib

import click

from pybroker import __version__

COMMANDS = ("serve", "log")


class _LazyGroup(click.Group):
    """Finds `pybroker.cli.commands.<name>.command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"pybroker.cli.commands.{cmd_name}").command
        return command


@click.group(cls=_LazyGroup)
@click.version_option(__version__, prog_name="pybroker")
def main() -> None:
    """A broker that speaks Apache Kafka's protocol and keeps Apache Kafka's files."""
