"""Results of all machines, from a topic and from files, into tables and a report: `python -m bench.aggregate.job`.

The topic goes to `<output>/raw` exactly once, by Structured Streaming with a checkpoint. The tables beside it are made
anew each time from that and from the files, so the same input gives the same tables. The status is 0 when all is well.
It is 1 when the newest change of a benchmark is recent and worse by more than 5 %. It is 2 when the command line is
wrong, and 3 when there is no row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.aggregate import pool, stream, tables
from bench.aggregate.report import Report
from bench.aggregate.session import start
from bench.aggregate.synthetic import synthetic

_EXIT_REGRESSION = 1
_EXIT_NOTHING = 3


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.aggregate.job", description=__doc__)
    parser.add_argument("--master", default="local[*]", help="Spark's master")
    parser.add_argument("--memory", default="2g", help="the driver's heap; all there is with a local master")
    parser.add_argument("--files", nargs="+", default=[], help="directories that `pybroker bench publish` wrote to")
    parser.add_argument("--bootstrap", help="HOST:PORT of the broker that has the topic")
    parser.add_argument("--topic", default="benchmarks")
    parser.add_argument(
        "--read",
        choices=["stream", "batch", "follow"],
        default="stream",
        help="the topic: what is new into <output>/raw; all of it in one read; or what is new for ever, without tables",
    )
    parser.add_argument("--batch-records", type=int, default=100_000, help="at most so many are one batch of a stream")
    parser.add_argument("--output", type=Path, default=Path("build/bench/pool"))
    parser.add_argument("--reference", help="the machine that others are compared with; default: with most benchmarks")
    parser.add_argument("--recent", type=int, default=20, help="a regression is at most so many commits old")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir(), "pybroker-spark"))
    parser.add_argument("--partitions", type=int, default=0, help="of shuffles; more need less memory each")
    parser.add_argument("--synthetic", type=int, default=0, metavar="ROWS", help="made-up rows instead of real ones")
    parser.add_argument("--commits", type=int, default=100, help="of each synthetic machine")
    parser.add_argument("--benchmarks", type=int, default=200, help="of each synthetic machine")
    options = parser.parse_args(arguments)
    if not (options.files or options.bootstrap or options.synthetic):
        parser.error("nothing to read: give --files, --bootstrap or --synthetic")
    if options.read == "follow" and not options.bootstrap:
        parser.error("--read follow needs --bootstrap")
    return options


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    timings[name] = round(time.monotonic() - begun, 2)
    print(f"{name}: {timings[name]:.1f} s", flush=True)


def _ingest(session: SparkSession, options: argparse.Namespace) -> None:
    follow = options.read == "follow"
    query = stream.ingest(
        session,
        options.bootstrap,
        options.topic,
        options.output,
        follow=follow,
        batch_records=options.batch_records,
    )
    if follow:
        print(f"following topic {options.topic}", flush=True)
    query.awaitTermination()


def _typed(session: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Everything that was published, unjudged."""
    if options.synthetic:
        return synthetic(session, options.synthetic, options.commits, options.benchmarks)
    sources = []
    if options.files:
        sources.append(pool.from_files(session, options.files))
    if options.bootstrap and options.read == "batch":
        sources.append(stream.read_topic(session, options.bootstrap, options.topic))
    elif options.bootstrap:
        sources.append(stream.ingested(session, options.output))
    raw = sources[0]
    for other in sources[1:]:
        raw = raw.unionByName(other)
    return pool.typed(raw)


class _Tables:
    """Writes tables into the output and reads them back, so that nothing is computed twice."""

    def __init__(self, session: SparkSession, output: Path) -> None:
        self._session = session
        self._output = output

    def write(self, name: str, table: DataFrame, parts: str | None = None) -> DataFrame:
        """The table as it was written; `parts` is a column of few values, each of which gets a directory."""
        # Keys are all different, so a dictionary of them is made in vain.
        writer = table.write.mode("overwrite").option("parquet.enable.dictionary#key", "false")
        (writer.partitionBy(parts) if parts else writer).parquet(self._path(name))
        return self._session.read.schema(table.schema).parquet(self._path(name))

    def adopt(self, name: str, part: str) -> DataFrame:
        """A part that was written under another name, as a table: nothing is copied."""
        paths = self._session._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # None before Java runs
        source, target = paths(self._path(part)), paths(self._path(name))
        files = target.getFileSystem(self._session._jsc.hadoopConfiguration())
        files.delete(target, True)
        if not files.rename(source, target):
            raise RuntimeError(f"{source.toString()} could not be renamed to {target.toString()}")
        return self._session.read.parquet(self._path(name))

    def _path(self, name: str) -> str:
        return str(self._output / name)


def _rows(written: _Tables, judged: DataFrame) -> DataFrame:
    """The tables of rows and of the quarantine. Where nothing is repeated the good rows are there already."""
    keys = written.write("repeated_keys", pool.repeated_keys(judged))
    if keys.isEmpty() and not judged.where("is_good").isEmpty():
        written.write("quarantine", pool.quarantine(judged))
        return written.adopt("rows", "judged/is_good=true")
    repeated = pool.repeated(judged, keys)
    written.write("quarantine", pool.quarantine(judged).unionByName(pool.quarantine(repeated)))
    return written.write("rows", pool.good(pool.unrepeated(judged, keys)).unionByName(pool.good(repeated)))


def _aggregate(session: SparkSession, options: argparse.Namespace, timings: dict[str, float]) -> Report:
    written = _Tables(session, options.output)
    with _timed(timings, "judge"):
        # Written once, or every question asked of it would parse the input again.
        judged = written.write("judged", pool.checked(_typed(session, options)), parts="is_good")
    with _timed(timings, "rows"):
        rows = _rows(written, judged)
    with _timed(timings, "histories"):
        histories = written.write("histories", tables.histories(rows))
    with _timed(timings, "tables"):
        levels = written.write("medians", tables.medians(histories))
        written.write("changes", tables.changes(histories, options.recent))
        reference = options.reference or tables.reference_machine(levels)
        ratios = written.write("ratios", tables.ratios(levels, reference))
        written.write("machines", tables.machine_ratios(ratios))
        written.write("roofline", tables.roofline(levels))
    with _timed(timings, "report"):
        report = Report(session, options.output)
        print(f"report: {report.write()}")
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, judge, aggregate, report; see the module's text for the status."""
    options = _options(arguments)
    timings: dict[str, float] = {}
    with _timed(timings, "spark"):
        with_kafka = options.bootstrap is not None
        session = start(
            options.master, options.memory, options.scratch, with_kafka=with_kafka, partitions=options.partitions
        )
    try:
        if options.bootstrap and options.read != "batch":
            with _timed(timings, "ingest"):
                _ingest(session, options)
        summary = _aggregate(session, options, timings).summary
    finally:
        session.stop()
    print(json.dumps({**vars(summary), "seconds": timings}), flush=True)
    if summary.rows == 0:
        print("no row at all: everything is in quarantine, or nothing was published", file=sys.stderr)
        return _EXIT_NOTHING
    return _EXIT_REGRESSION if summary.regressions else 0


if __name__ == "__main__":
    sys.exit(main())
