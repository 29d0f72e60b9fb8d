"""`pybroker perf produce`: producers on a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pybroker.cli.perf.perf_leavings import told_what_stays
from pybroker.cli.perf.perf_options import (
    BATCH_NAMES,
    batch_options,
    batch_words,
    common_options,
    producer_facts,
    producer_options,
    producer_words,
)
from pybroker.cli.perf.perf_run import Common, measure


@click.command(name="produce")
@common_options
@producer_options
@batch_options
def command(producers: int, rate: float, keys: int, payload_file: Path | None, **options: Any) -> None:
    """Produce to a topic and measure throughput and latency.

    With --rate each batch has its time, whatever the answers do (open loop): latency counts from that time. Without, a
    batch follows the answer to an earlier one (closed loop). Batches are made before the clock starts.

    \b
    pybroker perf produce --producers 4 --batch-bytes 64k --codec zstd --payload-file access.log
    pybroker perf produce --rate 2000 --seconds 60 --output result.json --report plots

    Exit status: 0, 1 the broker answered with an error or ended the load, 2 the command line is wrong.
    """
    from pybroker.perf.load import Load

    batch = {name: options.pop(name) for name in BATCH_NAMES}
    common = Common(**options)
    words = producer_words(producers=producers, rate=rate, keys=keys, payload_file=payload_file)
    load = Load("produce", common.generator("produce", *words, *batch_words(**batch)), producer_facts(payload_file))
    with told_what_stays(common.bootstrap, common.topic):
        measure(common, [load])
