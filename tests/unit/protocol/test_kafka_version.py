"""One Apache Kafka is the reference: what the texts and the generated files name is that version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.protocol.definitions import SCHEMA_DIR
from pybroker.protocol.kafka_version import KAFKA_VERSION

ROOT = Path(__file__).parents[3]
MINOR = KAFKA_VERSION.rpartition(".")[0]
#: Figures were taken beside the version that they name.
MEASURED = {"docs/append-engines.md"}
MEASURED_LINES = {"README.md": "Apache Kafka 4.3.0 as its documentation advises"}
_NAMED = re.compile(r"Apache Kafka(?:'s)?(?: \(|,? )?(4\.\d+(?:\.\d+)?)")


def _texts() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "NOTICE"]
    found += sorted((ROOT / "docs").glob("*.md"))
    found += sorted((ROOT / "pybroker").rglob("*.py"))
    found += sorted(path for path in (ROOT / "csrc").rglob("*.[ch]") if "generated" not in path.parts)
    return [path for path in found if str(path.relative_to(ROOT)) not in MEASURED]


def _strangers(text: str) -> list[str]:
    return [version for version in _NAMED.findall(text) if version not in (MINOR, KAFKA_VERSION)]


def test_texts_name_the_reference_alone() -> None:
    wrong = []
    for path in _texts():
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8").replace(MEASURED_LINES.get(name, "\0"), "")
        wrong += [f"{name}: Apache Kafka {version}" for version in _strangers(text)]
    assert wrong == []


@pytest.mark.parametrize("text", ["Apache Kafka 4.3 is", "Apache Kafka (4.2)", "Apache Kafka 4.3.0's"])
def test_another_version_is_noticed(text: str) -> None:
    assert len(_strangers(text)) == 1


def test_the_message_table_and_the_makefile_are_of_that_version() -> None:
    heads = {path.read_text(encoding="utf-8").splitlines()[0] for path in SCHEMA_DIR.glob("*.schema")}
    assert len(heads) == 1
    assert f"Apache Kafka {KAFKA_VERSION};" in heads.pop()
    assert "pybroker/protocol/kafka_version.py" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_newest_level_is_that_of_the_reference() -> None:
    assert (KAFKA_VERSION, MAX_METADATA_VERSION) == ("4.4.0", 33)
