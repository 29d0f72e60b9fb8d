"""`pybroker perf consume`: consumers of a topic, alone or in a group."""

from __future__ import annotations

from typing import Any

import click

from pybroker.cli.perf.perf_options import Size, common_options
from pybroker.cli.perf.perf_run import Common, measure


@click.command(name="consume")
@common_options
@click.option("--consumers", type=click.IntRange(1), help="One per partition; 1 in a group.")
@click.option("--fetch-bytes", type=Size(), default="1m", show_default=True, help="What a fetch asks for.")
@click.option("--rate", type=click.FloatRange(0), default=0, help="Fetches per second of all; 0: no bound.")
@click.option("--group", help="Consume as this group, with librdkafka, from its offsets or from the start.")
def command(consumers: int | None, fetch_bytes: int, rate: float, group: str | None, **options: Any) -> None:
    """Read a topic and measure throughput and latency.

    Each consumer reads one partition from its start to its end, again and again; the topic has to hold something.
    Records are not looked at, so this is what the broker can send. With --group, real clients read once: their own
    cost counts, the latency is that of a poll, and there is no open loop.

    \b
    pybroker perf consume --partitions 4 --fetch-bytes 1m
    pybroker perf consume --group readers --consumers 2

    Exit status: 0, 1 the broker answered with an error or ended the load, 2 the command line is wrong.
    """
    from pybroker.perf.load import Load

    common = Common(**options)
    if group is not None:
        if rate:
            raise click.UsageError("--rate is for consumers without a --group")
        measure(common, [Load("consume", common.group(group, consumers or 1))])
        return
    words = ["--connections", str(consumers or common.partitions), "--max-bytes", str(fetch_bytes)]
    words += ["--rate", f"{rate:g}"] if rate else []
    measure(common, [Load("consume", common.generator("fetch", *words))])
