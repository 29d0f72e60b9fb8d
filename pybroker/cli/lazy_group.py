"""A group of commands that are imported when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click


class LazyGroup(click.Group):
    """Finds the command `<name>` as `pybroker.cli.commands.<prefix><name>.command`, with `_` for each `-`."""

    def __init__(self, *args: Any, names: Sequence[str] = (), prefix: str = "", **kwargs: Any) -> None:
        """`names` are the commands, in the order that --help shows them."""
        super().__init__(*args, **kwargs)
        self._names = names
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        del ctx
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None for an unknown name."""
        del ctx
        if cmd_name not in self._names:
            return None
        module = f"pybroker.cli.commands.{self._prefix}{cmd_name}".replace("-", "_")
        command: click.Command = importlib.import_module(module).command
        return command
