"""`pybroker events`: why a running broker did what it did.

Exit status: 0, 1 when the broker cannot be reached, 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time
from datetime import datetime
from typing import Any

import click

from pybroker.cli.common import EXIT_INTERRUPTED, address_of, fail
from pybroker.observability.event_log import KINDS
from pybroker.observability.log_bounds import one_line

_DEFAULT_ADDRESS = "127.0.0.1:9404"
_TIMEOUT_S = 10.0
_POLL_S = 1.0
_MOST = 2048


@click.command(name="events", epilog="Kinds: " + "; ".join(f"{kind}: {means}" for kind, means in KINDS.items()))
@click.option(
    "--address",
    default=_DEFAULT_ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="The broker's pybroker.metrics.listener.",
)
@click.option("--kind", type=click.Choice(list(KINDS)), help="Only these.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, _MOST), help="The newest so many.")
@click.option("--follow", is_flag=True, help="Go on with what comes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(address: str, kind: str | None, limit: int, follow: bool, as_json: bool) -> None:
    """Show why a running broker did what it did: rebalances, rolls, throttled clients, slow requests, failed logs.

    The broker keeps the newest 2,048 in memory; its log has all of them.
    """
    after = 0
    try:
        while True:
            for event in _fetch(address, kind, limit if after == 0 else _MOST, after):
                after = event["number"]
                click.echo(json.dumps(event) if as_json else _line(event))
            if not follow:
                return
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _fetch(address: str, kind: str | None, limit: int, after: int) -> list[dict[str, Any]]:
    wanted = f"/events?limit={limit}&after={after}" + (f"&kind={kind}" if kind is not None else "")
    host, port = address_of("--address", address)
    try:
        with contextlib.closing(http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", wanted)
            response = connection.getresponse()
            body = response.read()
    except (OSError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
        fail(f"{address}: {error}; a broker tells events where its pybroker.metrics.listener says")
    if response.status != http.client.OK:
        fail(f"{address}: {body.decode(errors='replace').strip()}")
    try:
        events: list[dict[str, Any]] = json.loads(body)["events"]
    except (ValueError, TypeError, KeyError):
        fail(f"{address}: what answers there is no pybroker")
    return events


def _line(event: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(event["time"]).astimezone().isoformat(sep=" ", timespec="milliseconds")
    return f"{at}  {event['kind']:<12}  {one_line(event['text'])}"
