"""The topic into Parquet, each record exactly once, by Structured Streaming.

Spark's checkpoint records which offsets belong to a batch before the batch runs, and its file sink records which files
a batch committed. A batch that was cut off runs again with the same offsets, and the leftovers of its first attempt are
never read. So `raw` has to be read by Spark, which follows that record, and the checkpoint lives and dies with it.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.aggregate.pool import from_topic

_TRIGGER_SECONDS = 2
_RAW_SCHEMA = "value string, received timestamp, place string"


def _options(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def read_topic(session: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Raw input of all that is in the topic now, in one read."""
    return from_topic(session.read.format("kafka").options(**_options(bootstrap, topic)).load())


def ingest(
    session: SparkSession, bootstrap: str, topic: str, output: Path, *, follow: bool, batch_records: int
) -> StreamingQuery:
    """Start to bring what is new in the topic to `output`/raw: until there is no more, or on and on with `follow`. At
    most `batch_records` are one batch."""
    options = {**_options(bootstrap, topic), "maxOffsetsPerTrigger": str(batch_records)}
    records = session.readStream.format("kafka").options(**options).load()
    writer = from_topic(records).writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", str(output / "raw")).option("checkpointLocation", str(output / "checkpoint"))
    trigger = {"processingTime": f"{_TRIGGER_SECONDS} seconds"} if follow else {"availableNow": True}
    return writer.trigger(**trigger).start()


def ingested(session: SparkSession, output: Path) -> DataFrame:
    """Everything that `ingest` has brought so far: nothing, if the topic was empty."""
    (output / "raw").mkdir(parents=True, exist_ok=True)
    return session.read.schema(_RAW_SCHEMA).parquet(str(output / "raw"))
