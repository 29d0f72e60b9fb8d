"""One version of Spark: PySpark, its Kafka connector and the texts name the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bench.aggregate.spark_version import CONNECTOR, SPARK_VERSION

ROOT = Path(__file__).parents[2]
MINOR = SPARK_VERSION.rpartition(".")[0]
_NAMED = re.compile(r"\b(?:[Pp]y)?[Ss]park[^\n]{0,40}?(?<![\d.])([34]\.\d+(?:\.\d+)?)(?![\d.]*\d)")


def _texts() -> dict[str, str]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").rglob("*.py")]
    found += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests").rglob("*.md")]
    found.remove(Path(__file__))  # it has samples
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


def test_pyspark_is_pinned_to_that_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [each for each in project["optional-dependencies"]["bench"] if each.startswith("pyspark")]
    assert pins == [f"pyspark=={SPARK_VERSION}"]


def test_the_connector_is_sparks_own() -> None:
    assert {version for group, _name, version in CONNECTOR if group == "org.apache.spark"} == {SPARK_VERSION}


def test_texts_name_that_version_alone() -> None:
    named = {name: set(_NAMED.findall(text)) for name, text in _texts().items()}
    assert "docs/benchmarks.md" in {name for name, versions in named.items() if SPARK_VERSION in versions}
    assert {name: versions for name, versions in named.items() if versions - {SPARK_VERSION, MINOR}} == {}


@pytest.mark.parametrize("text", ["PySpark 4.0.0", "pyspark==4.1", "Spark, version 3.5.1,"])
def test_another_version_is_noticed(text: str) -> None:
    assert _NAMED.findall(text)
