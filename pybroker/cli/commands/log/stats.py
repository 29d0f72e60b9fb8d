"""`pybroker log stats`: what partitions are made of."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import open_paths

if TYPE_CHECKING:
    from pybroker.storage.offline.stats import PartitionStats

_EXIT_DAMAGED = 1
_WIDTH = 500


@click.command(name="stats")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--topics", is_flag=True, help="One line per topic instead of one per partition.")
@click.option("--deep", is_flag=True, help="Look at every record: exact compression ratios, and how many have no key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(paths: tuple[str, ...], topics: bool, deep: bool, as_json: bool) -> None:
    """Segments, bytes, records, codecs, compression, batch sizes and times; dirty ratios of compacted partitions.

    Batch sizes are percentiles, rounded down by at most an eighth. Without --deep the compression ratio is that of
    every 64th batch. The dirty ratio is known where a cleaner has been.

    Exit status: 0, or 1 when bytes were damaged (`pybroker log check` says where), 2 a PATH is nothing that a broker
    keeps.
    """
    from pybroker.native import NativeError
    from pybroker.storage.errors import StorageError
    from pybroker.storage.offline.stats import by_topic, stats

    try:
        found = [each for target in open_paths(paths) for each in stats(target, deep=deep)]
    except (StorageError, NativeError, OSError) as error:
        raise click.UsageError(str(error)) from None
    if topics:
        found = by_topic(found)
    if as_json:
        for each in found:
            click.echo(json.dumps(each.as_dict(deep=deep)))
    else:
        _print_table(found, deep)
    sys.exit(_EXIT_DAMAGED if any(each.damaged_bytes for each in found) else 0)


def _print_table(found: list[PartitionStats], deep: bool) -> None:
    from rich.markup import escape

    from pybroker.cli.profile.profile_options import make_console
    from pybroker.cli.tables import Title, print_cells

    names = ["segments", "bytes", "batches", "records", "codecs", "ratio", "batch p50/p99", "from", "to", "dirty"]
    titles = [Title(name, is_number=name != "codecs") for name in ([*names, "null keys"] if deep else names)]
    rows = []
    for each in found:
        size = f"{each.bytes:,}" + (f" [red]({each.damaged_bytes:,} damaged)[/]" if each.damaged_bytes else "")
        cells = [escape(each.name), f"{each.segments:,}", size, f"{each.batches:,}", f"{each.records:,}", _codecs(each)]
        cells += [_ratio(each.compression_ratio), _sizes(each), _time(each.min_timestamp_ms)]
        cells += [_time(each.max_timestamp_ms), _ratio(each.dirty_ratio)]
        rows.append([*cells, *([f"{each.null_keys:,}"] if deep else [])])
    print_cells(make_console(), [Title("partition"), *titles], rows)


def _codecs(each: PartitionStats) -> str:
    total = each.codec_batches.total()
    return " ".join(f"{name} {count / total:.0%}" for name, count in each.codec_batches.most_common())


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _sizes(each: PartitionStats) -> str:
    middle, large = each.size_percentile(50), each.size_percentile(99)
    return "-" if middle is None or large is None else f"{middle:,}/{large:,}"


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):
        return str(timestamp_ms)
