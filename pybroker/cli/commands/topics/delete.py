"""`pybroker topics delete`: topics with all their records."""

from __future__ import annotations

import sys

import click

from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.common import EXIT_FAILED
from pybroker.cli.name_options import complete_topics, names_option
from pybroker.cli.output import print_json


@click.command(name="delete")
@broker_options
@names_option("--topic", "names", complete_topics, help="Which; may be repeated.", metavar="TOPIC", required=True)
@click.option("--if-exists", is_flag=True, help="It is no error when a topic is not there.")
def command(bootstrap: str, timeout_ms: int, as_json: bool, names: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics with all their records.

    Names are taken as they are, not as regular expressions: that a dot stands for any letter has deleted topics before.
    """
    from pybroker.client import topics
    from pybroker.protocol.errors import ErrorCode

    with connected(bootstrap, timeout_ms) as cluster:
        results = topics.delete(cluster, dict.fromkeys(names))
    has_failed = False
    for name, error in results.items():
        is_missing = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        failed = error is not None and not (if_exists and is_missing)
        has_failed |= failed
        if as_json:
            print_json({"topic": name, "deleted": error is None, **({"error": str(error)} if error else {})})
        elif failed:
            click.echo(f"pybroker: {error}", err=True)
        else:
            click.echo(f"there is no topic {name}" if is_missing else f"deleted topic {name}")
    if has_failed:
        sys.exit(EXIT_FAILED)
