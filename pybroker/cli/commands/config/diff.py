"""`pybroker config diff`: what a server.properties, or brokers that run, have otherwise than the defaults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile.profile_options import config_options, load_config, make_console
from pybroker.cli.tables import Title, print_cells

if TYPE_CHECKING:
    from pybroker.config.difference import Difference


@click.command(name="diff")
@config_options
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT[,…]",
    help="The brokers that run there, ours or Apache Kafka's, instead of a file.",
)
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(properties: str | None, overrides: tuple[str, ...], bootstrap: str | None, as_json: bool) -> None:
    """Show the settings that differ from their defaults, and the line that sets each.

    Running brokers also give their dynamic settings. A setting that repeats its default is left out, and so is one that
    nobody knows (`pybroker config check` names it). Secrets are not shown.

    Exit status: 0, 1 when no broker can be reached, 2 when the configuration is not accepted.
    """
    from pybroker.config.difference import differences

    if bootstrap is not None and (properties is not None or overrides):
        raise click.UsageError("give a file or --bootstrap-server, not both")
    found = _of_brokers(bootstrap) if bootstrap is not None else differences(load_config(properties, overrides))
    if as_json:
        click.echo(json.dumps({"differences": [each.as_dict() for each in found]}, indent=2))
    else:
        _print(found)


def _of_brokers(bootstrap: str) -> list[Difference]:
    from pybroker.cli.broker_options import connected
    from pybroker.client.configs import ResourceType, Source, describe
    from pybroker.config.difference import differences_of

    layers = {
        Source.DYNAMIC_BROKER_CONFIG: "broker {}, dynamic",
        Source.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker {}, dynamic default",
        Source.STATIC_BROKER_CONFIG: "broker {}, its file",
    }
    found = []
    with connected(bootstrap) as cluster:
        for node in cluster.nodes():
            ((_, settings),) = describe(cluster, [(ResourceType.BROKER, str(node))]).items()
            given = [each for each in settings if each.source in layers]
            values = {each.name: each.value for each in given}
            found += differences_of(values, {each.name: layers[each.source].format(node) for each in given})
    return found


def _print(found: list[Difference]) -> None:
    from rich.markup import escape

    if not found:
        click.echo("nothing differs from the defaults")
        return
    rows = []
    for each in found:
        default = "not set" if each.default is None else each.default or "empty"
        rows.append([escape(text) for text in (each.name, each.value or "empty", default, each.where)])
    print_cells(make_console(), [Title("setting"), Title("value"), Title("default"), Title("set at")], rows)
