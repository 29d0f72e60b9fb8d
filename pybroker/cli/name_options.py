"""Names of topics, groups and settings on the command line: as arguments or options, with completion by the shell.

Completion asks the broker of --bootstrap-server, for a second at most, and completes nothing when it does not answer.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pybroker.cli.broker_options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Completion = Callable[[click.Context, click.Parameter, str], list[str]]
_SECONDS = 1.0
_ARGUMENTS = "positional"


def names_option(
    option: str, parameter: str, complete: _Completion, *, help: str, metavar: str = "NAME", required: bool = False
) -> Callable[[_Command], _Command]:
    """Names as arguments, or by `option`, which may be repeated; the command gets all of them as `parameter`."""

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_names(**options: Any) -> Any:
            names = (*options.pop(_ARGUMENTS), *options[parameter])
            if required and not names:
                raise click.UsageError(f"say which: {metavar} or {option} {metavar}")
            return command(**{**options, parameter: names})

        return _declared(with_names, option, parameter, complete, help, metavar)  # type: ignore[return-value]  # as its argument

    return decorate


def name_option(
    option: str, parameter: str, complete: _Completion, *, help: str, metavar: str = "NAME"
) -> Callable[[_Command], _Command]:
    """One name that has to be given, as an argument or by `option`; the command gets it as `parameter`."""

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_name(**options: Any) -> Any:
            names = (*options.pop(_ARGUMENTS), *options[parameter])
            if len(names) != 1:
                raise click.UsageError(f"give one name: {metavar} or {option} {metavar}")
            return command(**{**options, parameter: names[0]})

        return _declared(with_name, option, parameter, complete, help, metavar)  # type: ignore[return-value]  # as its argument

    return decorate


def _declared(
    command: Callable[..., Any], option: str, parameter: str, complete: _Completion, help: str, metavar: str
) -> Callable[..., Any]:
    by_option = click.option(option, parameter, multiple=True, metavar=metavar, shell_complete=complete, help=help)
    arguments = click.argument(_ARGUMENTS, nargs=-1, metavar=f"[{metavar}]...", shell_complete=complete)
    return arguments(by_option(command))


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics that begin like that."""

    def find(cluster: Cluster) -> Iterable[str]:
        from pybroker.client import topics

        return [each.name for each in topics.describe(cluster)]

    return _completed(ctx, incomplete, find)


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of groups that begin like that."""

    def find(cluster: Cluster) -> Iterable[str]:
        from pybroker.client import groups

        return [each.name for each in groups.list_groups(cluster)]

    return _completed(ctx, incomplete, find)


def complete_settings(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Names of settings of topics and brokers that begin like that."""
    from pybroker.config.broker_keys import BROKER_KEYS
    from pybroker.config.keys.topic import TOPIC_KEYS

    names = {*BROKER_KEYS, *(key.name for key in TOPIC_KEYS)}
    return sorted(name for name in names if name.startswith(incomplete))


def _completed(ctx: click.Context, incomplete: str, find: Callable[[Cluster], Iterable[str]]) -> list[str]:
    from pybroker.cli.common import address_of
    from pybroker.client.cluster import Cluster
    from pybroker.client.errors import ClientError

    bootstrap = ctx.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP)
    try:
        addresses = [address_of("--bootstrap-server", each.strip()) for each in str(bootstrap).split(",")]
        with Cluster(addresses, timeout_seconds=_SECONDS) as cluster:
            return sorted(name for name in find(cluster) if name.startswith(incomplete))
    except (ClientError, click.ClickException):
        return []
