"""`pybroker perf mixed`: producers, consumers of history and a consumer group at once."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import click

from pybroker.cli.perf.perf_leavings import told_what_stays
from pybroker.cli.perf.perf_options import (
    BATCH_NAMES,
    Size,
    batch_options,
    batch_words,
    common_options,
    producer_facts,
    producer_options,
    producer_words,
)
from pybroker.cli.perf.perf_run import Common, measure


@click.command(name="mixed")
@common_options
@producer_options
@batch_options
@click.option("--consumers", type=click.IntRange(0), default=1, show_default=True, help="Readers of history.")
@click.option("--history", type=Size(), default="64m", show_default=True, help="What is produced for them first.")
@click.option("--fetch-bytes", type=Size(), default="1m", show_default=True, help="What their fetches ask for.")
@click.option("--members", type=click.IntRange(0), default=0, help="Members of a group that follows (librdkafka).")
def command(
    producers: int,
    rate: float,
    keys: int,
    payload_file: Path | None,
    consumers: int,
    history: int,
    fetch_bytes: int,
    members: int,
    **options: Any,
) -> None:
    """Producers beside consumers on one topic, each measured by itself on one time line.

    Consumers read what is there when the load starts, again and again as fast as they get it; the members of the group
    follow the producers. All share the generator's CPUs, so --cpus and a machine with some to spare say more.

    \b
    pybroker perf mixed --partitions 4 --rate 500 --consumers 2 --members 2 --report plots

    Exit status: 0, 1 the broker answered with an error or ended a load, 2 the command line is wrong.
    """
    from pybroker.perf.load import Load

    batch = {name: options.pop(name) for name in BATCH_NAMES}
    common = Common(**options)
    words = producer_words(producers=producers, rate=rate, keys=keys, payload_file=payload_file)
    produce = common.generator("produce", *words, *batch_words(**batch))
    if consumers and history == 0:
        raise click.UsageError("--consumers need a --history to read")
    loads = [Load("produce", produce, producer_facts(payload_file))]
    if consumers:
        readers = ["--connections", str(consumers), "--max-bytes", str(fetch_bytes)]
        loads.append(Load("consume", common.generator("fetch", *readers)))
    if members:
        loads.append(Load("group", common.group(f"perf-{uuid.uuid4().hex[:8]}", members, is_ours=True)))
    with told_what_stays(common.bootstrap, common.topic):
        if consumers:
            _make_history(common, history, batch)
        measure(common, loads)


def _make_history(common: Common, size_bytes: int, batch: dict[str, Any]) -> None:
    settings = ["--topic-config", batch["topic_config"]] if batch["topic_config"] else []
    fill = ["--in-flight", "5", "--batch-bytes", "64k", "--codec", batch["codec"]]
    common.prepare("produce", *fill, "--bytes", str(max(size_bytes, common.partitions * (64 << 10))), *settings)
