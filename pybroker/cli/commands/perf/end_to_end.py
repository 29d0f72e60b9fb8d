"""`pybroker perf end-to-end`: from when a batch was due until its consumer has it."""

from __future__ import annotations

from typing import Any

import click

from pybroker.cli.perf.perf_leavings import told_what_stays
from pybroker.cli.perf.perf_options import BATCH_NAMES, batch_options, batch_words, common_options
from pybroker.cli.perf.perf_run import Common, measure


@click.command(name="end-to-end")
@common_options
@batch_options
@click.option("--rate", type=click.FloatRange(0.001), required=True, help="Batches per second over all partitions.")
def command(rate: float, **options: Any) -> None:
    """Produce on schedule to each partition, consume at its end, and measure the way of a batch.

    Each partition has one producer and one consumer, and must have no other producer. The latency is that from when a
    batch was due to be sent until it was consumed; the producers' own stands in the JSON as produce_latency_us.

    \b
    pybroker perf end-to-end --partitions 4 --rate 1000 --seconds 30

    Exit status: 0, 1 the broker answered with an error or ended the load, 2 the command line is wrong.
    """
    from pybroker.perf.load import Load

    batch = {name: options.pop(name) for name in BATCH_NAMES}
    if batch["acks"] == "0":
        raise click.UsageError("--acks 0 has no answers that the end of a batch could be told from")
    common = Common(**options)
    words = ["--connections", str(common.partitions), "--rate", f"{rate:g}", *batch_words(**batch)]
    with told_what_stays(common.bootstrap, common.topic):
        measure(common, [Load("end-to-end", common.generator("tail", *words))])
