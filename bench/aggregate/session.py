"""Spark with what this job needs: its Kafka connector by name, bounded memory, and our modules on every worker."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from bench.aggregate.spark_version import CONNECTOR, SPARK_VERSION
from tests.harness.kafka import cache_root, fetch_jars

ROOT = Path(__file__).resolve().parents[2]
#: The modules that run on workers, with their imports.
_MODULES = (
    "bench/__init__.py",
    "bench/aggregate/__init__.py",
    "bench/aggregate/changes.py",
    "bench/aggregate/history.py",
)


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector that PySpark's own distribution lacks, fetched by Maven when missing."""
    libs = fetch_jars(cache_root() / f"spark-kafka-{SPARK_VERSION}", CONNECTOR, transitive=False)
    return sorted(libs.glob("*.jar"))


#: Spark makes one method of all that happens to a row, and a JVM leaves long ones to its interpreter.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
#: Keeps few rows in memory at a time, whatever there is to read. The step that gathers the rows of histories keeps this
#: many histories before it begins to sort, which costs more than all the rest.
_BOUNDED_MEMORY = {
    "spark.sql.files.maxPartitionBytes": "32m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "16384",
    # Rows of `judged` go to two files at a time, instead of being sorted by which.
    "spark.sql.maxConcurrentOutputFileWriters": "2",
}
#: Half of what a row takes are its key's hexadecimal digits.
_SMALL_FILES = {"spark.sql.parquet.compression.codec": "zstd", "spark.io.compression.codec": "zstd"}


def start(master: str, memory: str, scratch: Path, *, with_kafka: bool, partitions: int = 0) -> SparkSession:
    """A session. `memory` is the driver's heap, which is all there is with a local master. `scratch` takes what spills.
    `partitions` is the number for shuffles; with 0 Spark chooses, and it joins small ones of many."""
    scratch.mkdir(parents=True, exist_ok=True)
    builder = (
        SparkSession.builder.appName("pybroker-benchmarks")
        .master(master)
        .config("spark.driver.memory", memory)
        .config("spark.local.dir", str(scratch))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(partitions or 256))
        .config("spark.sql.execution.pythonUDF.arrow.enabled", "false")
        .config("spark.driver.extraJavaOptions", f"-XX:+UseParallelGC {_COMPILE_ALL}")
        .config("spark.executor.extraJavaOptions", _COMPILE_ALL)
    )
    for name, value in {**_BOUNDED_MEMORY, **_SMALL_FILES}.items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        # Workers run this interpreter, whatever python3 is in PATH; a cluster has its own, with NumPy.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if with_kafka:
        builder = builder.config("spark.jars", ",".join(map(str, connector_jars())))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("PYBROKER_SPARK_LOG", "ERROR"))
    _ship_modules(session, scratch)
    return session


def _ship_modules(session: SparkSession, scratch: Path) -> None:
    """Workers of a cluster have no checkout."""
    path = Path(tempfile.mkdtemp(dir=scratch)) / "bench.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in _MODULES:
            archive.write(ROOT / name, name)
    session.sparkContext.addPyFile(str(path))
