"""Splits what was published into rows that count and a quarantine. The rules are those of `pybroker.results.row.check`,
as Spark's own expressions, since no function in Python keeps up with millions of rows; a test holds both to the same
documents. A number where a text belongs is taken as text.

Raw input has one line of JSON per row (`value`). `received` is the time by the clock of the broker or the file system,
and `place` is the origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, or_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pybroker.results.row import (
    CLOCK_TOLERANCE,
    EARLIEST,
    FIELD_SEPARATOR,
    HIGHER,
    LOWER,
    PAIR_SEPARATOR,
    SCHEMA_VERSION,
    Reason,
)

_CONFIDENCE = ("confidence", "confidence_low", "confidence_high")
_TEXTS = ("commit", "cpu", "disk", "nic", "kernel", "file_system", "profile", "backend", "engine", "durability")
_REQUIRED_TEXTS = ("suite", "benchmark", "unit", "better", "machine")
_ROW_SCHEMA = ", ".join(
    (
        *(f"`{name}` string" for name in (*_REQUIRED_TEXTS, *_TEXTS, "limit", "source", "time", "commit_time")),
        *(f"{name} double" for name in ("value", *_CONFIDENCE)),
        "samples bigint, cores bigint, ram_bytes bigint, schema bigint",
        "parameters map<string, string>",
        "rejected struct<reason: string, detail: string, source: string, excerpt: string>",
        "_broken string",
    )
)
_KEY = ("suite", "benchmark", "parameters_text", "unit", "commit", "time", "machine")
_SETTINGS = ("profile", "backend", "engine", "durability")
_EXCERPT = 200
_USUAL_TIME_LENGTH = len("2026-01-31T12:00:00Z")


def from_files(session: SparkSession, directories: Sequence[str]) -> DataFrame:
    """Raw input of every .jsonl file in the directories."""
    lines = (
        session.read.option("pathGlobFilter", "*.jsonl").option("recursiveFileLookup", "true").text(list(directories))
    )
    received = f.col("_metadata.file_modification_time").alias("received")
    return lines.select("value", received, f.col("_metadata.file_name").alias("place"))


def from_topic(records: DataFrame) -> DataFrame:
    """Raw input of what Spark's Kafka source gives, batch or stream."""
    place = f.concat_ws(
        "-", "topic", f.col("partition").cast("string"), f.lpad(f.col("offset").cast("string"), 19, "0")
    )
    return records.select(
        f.col("value").cast("string").alias("value"), f.col("timestamp").alias("received"), place.alias("place")
    )


def typed(raw: DataFrame) -> DataFrame:
    """One column per field of a row, with `received` and `place`; what is no row has `_broken` or `rejected`."""
    parsed = f.from_json("value", _ROW_SCHEMA, {"columnNameOfCorruptRecord": "_broken"})
    # The parser of rows takes a bare NaN or Infinity, for which there is a reason of its own; the other one does not.
    is_json = f.get_json_object("value", "$").isNotNull()
    is_row = f.col("row._broken").isNull() & f.col("row.schema").isNotNull()
    rows = raw.select("value", "received", "place", parsed.alias("row"))
    excerpt = f.substring("value", 1, _EXCERPT).alias("excerpt")
    return rows.select("received", "place", (is_json | is_row).alias("is_json"), excerpt, "row.*")


def _is_empty(name: str) -> Column:
    return f.col(name).isNull() if name in ("value", "samples") else f.coalesce(f.col(name), f.lit("")) == ""


def _is_infinite(name: str) -> Column:
    return f.coalesce(f.isnan(name) | (f.abs(name) == float("inf")), f.lit(False))


def _problems() -> list[tuple[Column, Reason, Column]]:
    """The checks in their order: a condition, the reason, the detail."""
    wanted = (*_REQUIRED_TEXTS, "time", "value", "samples")
    # Conditions are plain ones: a list made for every row would cost more than all of them.
    is_missing = reduce(or_, map(_is_empty, wanted))
    missing = f.array_compact(f.array(*(f.when(_is_empty(name), f.lit(name)) for name in wanted)))
    given = reduce(add, (f.col(name).isNotNull().cast("int") for name in _CONFIDENCE))
    infinite = reduce(or_, map(_is_infinite, ("value", *_CONFIDENCE)))
    measured, commit_time, tolerance = f.col("measured"), f.col("committed"), f.lit(CLOCK_TOLERANCE)
    skewed = (
        (measured > f.col("received") + tolerance) | (measured < f.lit(EARLIEST)) | (measured < commit_time - tolerance)
    )
    times = (f.lit("measured"), f.col("time"), f.lit("commit of"), f.col("commit_time"), f.lit("received"))
    version = f.concat(f.lit("schema "), f.col("schema").cast("string"))
    malformed = Reason.MALFORMED
    return [
        (~f.col("is_json"), Reason.TRUNCATED, f.lit("no JSON, or not all of it")),
        (f.col("schema").isNull(), Reason.UNKNOWN_FORMAT, f.lit("no schema")),
        (f.col("schema") != SCHEMA_VERSION, Reason.UNKNOWN_VERSION, version),
        (is_missing, malformed, f.concat(f.lit("no "), f.array_join(missing, ", "))),
        (f.col("_broken").isNotNull(), malformed, f.lit("a field has the wrong type")),
        (~f.col("better").isin(HIGHER, LOWER), malformed, f.lit("better should be higher or lower")),
        (f.col("samples") < 0, malformed, f.lit("samples is negative")),
        (measured.isNull(), malformed, f.lit("time is none")),
        ((f.col("commit_time") != "") & commit_time.isNull(), malformed, f.lit("commit_time is none")),
        (given.isin(1, 2), malformed, f.lit("confidence, confidence_low and confidence_high go together")),
        (infinite, Reason.NOT_A_NUMBER, f.concat(f.lit("value is "), f.col("value").cast("string"))),
        (skewed, Reason.CLOCK_SKEW, f.concat_ws(" ", *times, f.col("received").cast("string"))),
    ]


def _moment(name: str) -> Column:
    """A time as a timestamp; null where it is none, or empty. One of the usual form is read much faster without
    its `Z`, which the session's zone makes up for."""
    text = f.nullif(f.col(name), f.lit(""))
    is_usual = (f.length(text) == _USUAL_TIME_LENGTH) & text.endswith("Z")
    return f.try_to_timestamp(f.when(is_usual, f.substring(text, 1, _USUAL_TIME_LENGTH - 1)).otherwise(text))


def checked(rows: DataFrame) -> DataFrame:
    """`typed` rows with what the tables group by; `rejection` says what is wrong, and is null where nothing is."""
    parameters = f.transform(
        f.map_entries(f.coalesce("parameters", f.create_map().cast("map<string, string>"))),
        lambda entry: f.concat(entry["key"], f.lit("="), entry["value"]),
    )
    rows = rows.withColumns(
        {
            "measured": _moment("time"),
            "committed": _moment("commit_time"),
            "parameters_text": f.array_join(f.sort_array(parameters), PAIR_SEPARATOR),
            **{name: f.coalesce(name, f.lit("")) for name in (*_TEXTS, "limit")},
        }
    )
    # The first problem's number, once; its texts are made of that, where there is one.
    found, problem = f.when(f.col("rejected").isNotNull(), 0), f.col("_problem")
    reason, detail = f.when(problem == 0, f.col("rejected.reason")), f.when(problem == 0, f.col("rejected.detail"))
    for number, (condition, why, text) in enumerate(_problems(), 1):
        found = found.when(condition, number)
        reason, detail = reason.when(problem == number, str(why)), detail.when(problem == number, text)
    key = f.sha2(f.concat_ws(FIELD_SEPARATOR, *_KEY, *_SETTINGS), 256)
    rejection = _rejection(reason, detail, f.coalesce("rejected.excerpt", "excerpt"))
    names = (*_REQUIRED_TEXTS, *_TEXTS, "limit", "value", *_CONFIDENCE, "samples", "cores", "ram_bytes")
    return rows.withColumn("_problem", found).select(
        f.substring(key, 1, 32).alias("key"),
        *("parameters_text", "measured", "committed", *names),
        f.coalesce("rejected.source", "source").alias("source"),
        *("received", "place"),
        f.when(problem.isNotNull(), rejection).alias("rejection"),
        problem.isNull().alias("is_good"),
    )


def _rejection(reason: Column, detail: Column, excerpt: Column) -> Column:
    return f.struct(reason.alias("reason"), detail.alias("detail"), excerpt.alias("excerpt"))


def repeated_keys(rows: DataFrame) -> DataFrame:
    """The keys that several good rows of `checked` have: few, as a rule, so that only their rows need sorting. Keys are
    long, so their hashes travel first, and only what shares one is looked at."""
    keys = rows.where("is_good").select("key", f.xxhash64("key").alias("_hash"))
    shared = keys.groupBy("_hash").count().where("count > 1").select("_hash")
    suspects = keys.join(f.broadcast(shared), "_hash", "left_semi")
    return suspects.groupBy("key").count().where("count > 1").select("key")


def unrepeated(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The good rows whose key nobody else has."""
    return rows.where("is_good").join(keys, "key", "left_anti")


def repeated(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The others; each that repeats an earlier one is rejected."""
    rows = rows.where("is_good").join(keys, "key", "left_semi")
    order = Window.partitionBy("key").orderBy("received", "place", "value")
    first, number = f.first("value").over(order), f.row_number().over(order)
    rows = rows.withColumns({"_number": number, "_first": first})
    repeats = f.when(f.col("value") == f.col("_first"), str(Reason.DUPLICATE)).otherwise(str(Reason.CONFLICT))
    detail = f.concat(f.lit("first published with value "), f.col("_first").cast("string"))
    excerpt = f.to_json(f.struct("suite", "benchmark", "machine", "measured", "value"))
    is_repeat = f.col("_number") > 1
    rejection = f.when(is_repeat, _rejection(repeats, detail, excerpt))
    return rows.withColumns({"rejection": rejection, "is_good": ~is_repeat}).drop("_number", "_first")


def quarantine(rows: DataFrame) -> DataFrame:
    """The quarantine's table, of rows that are rejected."""
    names = ("place", "source", "machine", "benchmark", "received")
    return rows.where("not is_good").select("rejection.reason", "rejection.detail", *names, "rejection.excerpt")


def good(rows: DataFrame) -> DataFrame:
    """The rows' table."""
    return rows.where("is_good").drop("is_good")
