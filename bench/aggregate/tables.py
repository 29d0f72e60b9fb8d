"""Rows that count → histories, levels, changes, ratios between machines, and fractions of machines' limits."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from bench.aggregate.history import RESULT_SCHEMA, analyse
from pybroker.results import limits
from pybroker.results.row import HIGHER

#: The subject of a history: a figure and its setting.
MEASURED = ("suite", "benchmark", "parameters_text", "unit", "better")
SETTING = ("machine", "profile", "backend", "engine", "durability")
#: A change for the worse by less is no regression.
TOLERANCE = 0.05


def histories(rows: DataFrame) -> DataFrame:
    """One row per benchmark, machine and setting. `points` holds a value per commit, in the order of commits, with
    `commits` and `times`. Beside them are the median of the present level, with a 95 % interval, and the `changes` of
    level."""
    # A commit's rows stay together, in the place of its oldest row, if it has no time of its own.
    ordered = f.struct(
        f.coalesce("committed", "measured").alias("time"),
        "commit",
        f.when(f.col("commit") == "", f.lit(0)).otherwise(f.xxhash64("commit")).alias("code"),
        "value",
    )
    names = (*SETTING, *MEASURED)
    # 128 bits stand for ten texts, which would be most of what is moved and compared.
    number = (f.xxhash64(*names).alias("_number"), f.xxhash64(f.lit(1), *names).alias("_number_too"))
    gathered = rows.groupBy(*number).agg(
        *(f.first(name).alias(name) for name in names),
        f.sort_array(f.collect_list(ordered)).alias("rows"),
        f.max("limit").alias("limit"),
    )
    # Without Arrow. Else Spark would guess by type hints, and warn that it cannot.
    analysed = f.udf(analyse, RESULT_SCHEMA, useArrow=False)(f.col("rows.code"), f.col("rows.value"))
    found = gathered.withColumn("found", analysed)
    # Sizes and picks happen here, so that neither commits nor times travel to Python; and nothing comes back from there
    # that is here already.
    chosen = f.transform("found.positions", lambda position: f.get("rows", position))
    picked = f.coalesce(chosen, f.col("rows"))
    points = f.coalesce(f.col("found.points"), f.col("rows.value")).alias("points")
    return found.withColumn("picked", picked).select(
        *SETTING,
        *MEASURED,
        "limit",
        f.size("rows").alias("rows_count"),
        f.col("picked.commit").alias("commits"),
        f.col("picked.time").alias("times"),
        points,
        *(f.col(f"found.{name}") for name in ("median", "confidence_low", "confidence_high")),
        *(f.col(f"found.{name}") for name in ("level_commits", "changes")),
    )


def medians(found: DataFrame) -> DataFrame:
    """The level each benchmark is at since its last change, per machine and setting."""
    return found.select(
        *SETTING,
        *MEASURED,
        "limit",
        "median",
        "confidence_low",
        "confidence_high",
        "level_commits",
        f.size("points").alias("history_commits"),
        "rows_count",
        f.element_at("points", -1).alias("latest"),
        f.element_at("commits", -1).alias("latest_commit"),
    )


def _improvement(ratio: Column) -> Column:
    """How many times better: above 1 for an improvement, whichever way that goes."""
    return f.when(f.col("better") == HIGHER, ratio).otherwise(1 / ratio)


def changes(found: DataFrame, recent_commits: int) -> DataFrame:
    """One row per change of level. `is_regression`: the last one of its history, to the worse by more than the
    tolerance, at most `recent_commits` ago."""
    each = found.where(f.size("changes") > 0).select("*", f.posexplode("changes").alias("position", "change"))
    index, age = f.col("change.index"), f.size("points") - f.col("change.index")
    improvement = _improvement(f.col("change.after") / f.col("change.before"))
    is_last = f.col("position") == f.size("changes") - 1
    return each.select(
        *SETTING,
        *MEASURED,
        f.get("commits", index).alias("commit"),
        f.get("commits", index - 1).alias("previous_commit"),
        f.get("times", index).alias("time"),
        f.col("change.before").alias("before"),
        f.col("change.after").alias("after"),
        improvement.alias("improvement"),
        f.col("change.score").alias("score"),
        age.alias("age_commits"),
        (is_last & (improvement < 1 - TOLERANCE) & (age <= recent_commits)).alias("is_regression"),
    )


def reference_machine(levels: DataFrame) -> str:
    """The machine with the most benchmarks, by name among equals."""
    counted = levels.groupBy("machine").count().orderBy(f.desc("count"), "machine").limit(1).collect()
    return str(counted[0]["machine"]) if counted else ""


def ratios(levels: DataFrame, reference: str) -> DataFrame:
    """Every machine against the reference, benchmark by benchmark under the same backend, engine and durability.
    `improvement` is how many times better than the reference. Where both medians have an interval, so has it: both hold
    together with at least 90 %."""
    same = (*MEASURED, "backend", "engine", "durability")
    names = ("median", "confidence_low", "confidence_high")
    base = levels.where(f.col("machine") == reference)
    # Where the reference ran under several profiles, the first by name stands for it.
    one = Window.partitionBy(*same).orderBy("profile")
    base = base.withColumn("_number", f.row_number().over(one)).where("_number = 1")
    base = base.select(*same, *(f.col(name).alias(f"reference_{name}") for name in names))
    both = levels.where(f.col("machine") != reference).join(f.broadcast(base), list(same))
    ratio = _improvement(f.col("median") / f.col("reference_median"))
    bounds = [
        _improvement(f.col("confidence_low") / f.col("reference_confidence_high")),
        _improvement(f.col("confidence_high") / f.col("reference_confidence_low")),
    ]
    known = bounds[0].isNotNull() & bounds[1].isNotNull()
    return both.where("reference_median > 0 and median > 0").select(
        *SETTING,
        *MEASURED,
        f.lit(reference).alias("reference"),
        "median",
        "reference_median",
        ratio.alias("improvement"),
        f.when(known, f.least(*bounds)).alias("improvement_low"),
        f.when(known, f.greatest(*bounds)).alias("improvement_high"),
    )


def machine_ratios(each: DataFrame) -> DataFrame:
    """Per machine and setting the geometric mean over its benchmarks."""
    return each.groupBy(*SETTING, "reference").agg(
        f.exp(f.avg(f.log("improvement"))).alias("improvement"), f.count("*").alias("benchmarks")
    )


def roofline(levels: DataFrame) -> DataFrame:
    """The part of the machine's measured limit that a benchmark reaches: 1 is the limit itself. Only for benchmarks
    that name a limit, on machines that measured it in the same unit."""
    measured = levels.where(f.col("suite") == limits.SUITE).groupBy(
        "machine", f.col("benchmark").alias("limit"), "unit"
    )
    limit_values = measured.agg(f.median("median").alias("limit_value"))
    bounded = levels.where((f.col("limit") != "") & (f.col("suite") != limits.SUITE))
    fraction = f.when(f.col("better") == HIGHER, f.col("median") / f.col("limit_value")).otherwise(
        f.col("limit_value") / f.col("median")
    )
    joined = bounded.join(limit_values, ["machine", "limit", "unit"])
    return joined.select(*SETTING, *MEASURED, "limit", "median", "limit_value", fraction.alias("fraction"))
