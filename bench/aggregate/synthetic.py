"""Rows that nobody measured, made by Spark itself: to see how the job grows with its input.

One row per machine, commit and benchmark. Every history has its own level and Student-t noise of 5 %; a tenth of the
benchmarks lose 10 % at two thirds of the commits, on every machine.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

_COMMIT_SECONDS = 3600
_START = 1735689600  # 2025-01-01
_SEED = 7


def _noise() -> Column:
    """Student-t with 3 degrees of freedom, of deviation 0.05."""
    squares = sum((f.pow(f.randn(_SEED + number), 2) for number in range(1, 4)), f.lit(0.0))
    return f.randn(_SEED) / f.sqrt(squares / 3) * (0.05 / 3**0.5)


def _commits(session: SparkSession, count: int) -> DataFrame:
    """Each commit with its texts, which would cost more than all the rest if every row made them."""
    number = f.col("id").cast("int")
    time = f.timestamp_seconds(_START + number * _COMMIT_SECONDS)
    return session.range(count).select(
        number.alias("commit_number"),
        f.sha1(number.cast("string")).alias("commit"),
        f.date_format(time, "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("time"),
    )


def synthetic(session: SparkSession, row_count: int, commits: int, benchmarks: int) -> DataFrame:
    """`typed` rows, as if they had been read from files."""
    identifier, per_machine = f.col("id"), commits * benchmarks
    numbers = session.range(row_count).select(
        f.expr(f"id div {per_machine}").cast("int").alias("machine_number"),
        f.expr(f"(id % {per_machine}) div {benchmarks}").cast("int").alias("commit_number"),
        (identifier % benchmarks).cast("int").alias("benchmark_number"),
    )
    machine, commit, benchmark = f.col("machine_number"), f.col("commit_number"), f.col("benchmark_number")
    level = 100 + f.abs(f.hash(benchmark, machine)) % 1000
    step = f.when((benchmark % 10 == 0) & (commit >= commits * 2 // 3), 0.9).otherwise(1.0)
    texts = ("cpu", "disk", "nic", "kernel", "file_system", "profile", "backend", "engine", "durability", "limit")
    return numbers.join(f.broadcast(_commits(session, commits)), "commit_number").select(
        f.timestamp_seconds(f.lit(_START + (commits + 1) * _COMMIT_SECONDS)).alias("received"),
        f.lit("synthetic").alias("place"),
        f.lit(True).alias("is_json"),
        f.lit("").alias("excerpt"),
        f.lit("synthetic").alias("suite"),
        f.concat(f.lit("benchmark-"), f.lpad(benchmark.cast("string"), 3, "0")).alias("benchmark"),
        f.lit("MB/s").alias("unit"),
        f.lit("higher").alias("better"),
        f.concat(f.lit("machine-"), f.lpad(machine.cast("string"), 4, "0")).alias("machine"),
        "commit",
        *(f.lit(name).alias(name) for name in texts),
        f.lit("synthetic").alias("source"),
        "time",
        f.col("time").alias("commit_time"),
        f.greatest(level * step * (1 + _noise()), f.lit(1.0)).alias("value"),
        *(f.lit(None).cast("double").alias(name) for name in ("confidence", "confidence_low", "confidence_high")),
        f.lit(3).cast("bigint").alias("samples"),
        f.lit(8).cast("bigint").alias("cores"),
        f.lit(1 << 34).cast("bigint").alias("ram_bytes"),
        f.lit(1).cast("bigint").alias("schema"),
        f.create_map(f.lit("batch_bytes"), f.lit("65536")).alias("parameters"),
        f.lit(None).cast("struct<reason: string, detail: string, source: string, excerpt: string>").alias("rejected"),
        f.lit(None).cast("string").alias("_broken"),
    )
