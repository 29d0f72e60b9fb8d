"""The part of `pybroker configs` for users, client ids and addresses: quotas, and credentials of users (SCRAM)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from pybroker.cli.output import Column, is_terminal, print_json, print_rows

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.quotas import Entity, Password, Who

_COLUMNS = [Column("of", "of"), Column("name", "setting"), Column("value", "value")]
#: The bounds of Kafka's tools.
_ITERATIONS = 4096


def describe_clients(cluster: Cluster, who: Who, names: tuple[str, ...], as_json: bool) -> None:
    """Print the quotas of `who`, and the credentials where users alone are asked for."""
    from pybroker.client import quotas

    found: list[tuple[Entity, str, float | str]] = [
        (entity, key, value)
        for entity, values in quotas.describe(cluster, who).items()
        for key, value in values.items()
    ]
    if who.keys() == {"user"} and who["user"] is not None:
        found += [
            (quotas.entity_of({"user": user}), mechanism, f"iterations={iterations}")
            for user, mechanisms in quotas.credentials(cluster).items()
            if who["user"] in (quotas.EVERY, user)
            for mechanism, iterations in mechanisms.items()
        ]
    rows = [
        {
            "entity": quotas.names_of(entity),
            "of": quotas.text_of(entity),
            "name": key,
            "value": value if isinstance(value, str) or as_json else f"{value:.12g}",
        }
        for entity, key, value in sorted(found, key=lambda each: (quotas.text_of(each[0]), each[1]))
        if not names or key in names
    ]
    if rows or not is_terminal():
        print_rows(_COLUMNS, rows, as_json)


def alter_clients(
    cluster: Cluster, who: Who, values: Mapping[str, str], deleted: Iterable[str], validate_only: bool, as_json: bool
) -> None:
    """Set and delete quotas and credentials of one entity."""
    from pybroker.client import quotas

    entity = quotas.entity_of({kind: _one(name) for kind, name in who.items()})
    mechanisms = {name: number for number, name in quotas.MECHANISMS.items()}
    rates = {key: _rate(key, value) for key, value in values.items() if key not in mechanisms}
    no_rates = [key for key in deleted if key not in mechanisms]
    credentials: dict[int, Password | None] = {mechanisms[key]: None for key in deleted if key in mechanisms}
    credentials |= {mechanisms[key]: _password(key, value) for key, value in values.items() if key in mechanisms}
    if credentials:
        user = who.get("user")
        if not isinstance(user, str) or len(who) > 1:
            raise click.UsageError("credentials are those of one user: say --user NAME, and nothing beside")
        if validate_only:
            raise click.UsageError("--validate-only is not for credentials")
        for mechanism, password in credentials.items():
            quotas.alter_credential(cluster, user, mechanism, password)
    if rates or no_rates:
        quotas.alter(cluster, entity, values=rates, delete=no_rates, validate_only=validate_only)
    if as_json:
        facts = {"set": sorted(values), "deleted": [*deleted], "altered": not validate_only}
        print_json({"entity": quotas.names_of(entity), **facts})
    else:
        click.echo(f"{quotas.text_of(entity)}: {'would be accepted' if validate_only else 'changed'}")


def _one(name: object) -> str | None:
    if name is None or isinstance(name, str):
        return name
    raise click.UsageError("say which of them with --entity-name, or --entity-default")


def _rate(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key}={text}: the value of a quota is a number") from None


def _password(mechanism: str, text: str) -> Password:
    from pybroker.client.quotas import Password

    parts = dict(part.partition("=")[::2] for part in text.split(","))
    iterations = parts.pop("iterations", str(_ITERATIONS))
    password = parts.pop("password", "")
    if parts or not password or not (iterations.isascii() and iterations.isdecimal()):
        raise click.UsageError(f"accepted is {mechanism}=[iterations={_ITERATIONS},password=…]")
    return Password(password, int(iterations))
