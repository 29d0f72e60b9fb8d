"""`pybroker log dump`: what the files of a stopped broker hold, in readable form."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import click

from pybroker.cli.files.paths import open_paths, printable

_EXIT_PROBLEM = 1
# Only said where it is so, or where there is one.
_FLAGS = ("transactional", "control", "delete_horizon", "zeros")
_PRODUCER = ("producer_id", "producer_epoch", "base_sequence")


@click.command(name="dump")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--records", is_flag=True, help="The records of each batch as well.")
@click.option("--raw", is_flag=True, help="With --records: keys and values in hexadecimal, nothing decoded.")
@click.option(
    "--decoder",
    type=click.Choice(["group", "transaction", "share", "metadata"]),
    help="How records are to be decoded, where the directory's name does not tell.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(paths: tuple[str, ...], records: bool, raw: bool, decoder: str | None, as_json: bool) -> None:
    """Print batches, index entries, snapshots and checkpoints, one per line.

    Records of coordinators and of the metadata log are decoded. Damage is printed where it is, and what follows it too.

    Exit status: 0 all was printed, 1 a file or a record could not be read, 2 a PATH is nothing that a broker keeps.
    """
    from pybroker.storage.offline.dump import DumpOptions, dump

    options = DumpOptions(records or raw, raw, decoder)
    problems = 0
    for target in open_paths(paths):
        for item in dump(target, options):
            problems += item["type"] in ("problem", "garbage") or item.get("valid") is False or "problem" in item
            sys.stdout.write((json.dumps(item) if as_json else printable(_line(item))) + "\n")
    sys.exit(_EXIT_PROBLEM if problems else 0)


def _line(item: dict[str, Any]) -> str:
    kind = item["type"]
    if kind == "file":
        return f"\n{item['path']} ({item['size_bytes']:,} bytes)"
    indent = "    " if kind == "record" else "  "
    return indent + " ".join([kind, *(part for name, value in item.items() if (part := _part(item, name, value)))])


def _part(item: dict[str, Any], name: str, value: Any) -> str:
    """One field; "" for those that go without saying."""
    if name == "type" or (name in _FLAGS and not value):
        return ""
    if name in _FLAGS:
        return name
    if name in _PRODUCER and item["type"] == "batch" and item["producer_id"] < 0:
        return ""
    if name == "valid":
        return "" if value else "WRONG-CRC"
    if name == "headers":
        return f"headers={json.dumps(value, ensure_ascii=False)}" if value else ""
    if name.endswith("timestamp_ms"):
        return f"{name.removesuffix('_ms')}={_time(value)}"
    if isinstance(value, dict):
        return f"{name}={json.dumps(value, ensure_ascii=False)}"
    return f"{name}={value!r}" if isinstance(value, str) and name in ("key", "value") else f"{name}={value}"


def _time(timestamp_ms: int | None) -> str:
    """Ms since 1970 as a time of day where there is one."""
    if timestamp_ms is None or timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError):
        return str(timestamp_ms)
