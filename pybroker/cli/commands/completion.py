"""`pybroker completion`: a script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_PROGRAM = "pybroker"
_VARIABLE = "_PYBROKER_COMPLETE"


@click.command(name="completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script for completion in bash, zsh or fish.

    \b
    bash, in ~/.bashrc:  eval "$(pybroker completion bash)"
    zsh, in ~/.zshrc:    eval "$(pybroker completion zsh)"
    fish, once:          pybroker completion fish \\
                             > ~/.config/fish/completions/pybroker.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, _PROGRAM, _VARIABLE).source())
