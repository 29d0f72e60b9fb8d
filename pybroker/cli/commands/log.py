"""`pybroker log`: tools for the files of a stopped broker, ours or Apache Kafka's. Its commands are beside it."""

from __future__ import annotations

import importlib

import click

_COMMANDS = ("dump", "check", "repair", "stats")


class _LazyGroup(click.Group):
    """Finds `pybroker.cli.commands.log_<name>.command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"pybroker.cli.commands.log_{cmd_name}").command
        return command


@click.group(name="log", cls=_LazyGroup)
def command() -> None:
    """Look at, check and save the files of a stopped broker, ours or Apache Kafka's.

    A PATH is a log dir, a partition's directory, or one file: .log, .index, .timeindex, .txnindex, .snapshot,
    .checkpoint, leader-epoch-checkpoint, partition.metadata, quorum-state, meta.properties, or a checkpoint of a log
    dir. Nothing but `repair` writes, and a broker that runs makes what these tools say out of date at once.
    """
