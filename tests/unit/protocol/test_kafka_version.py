"""One Apache Kafka is the reference: what the texts and the generated files name is that version.

A text may name another version only where it must: `OLD` and `OLD_RELEASES` list those, with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.settings import RELEASES
from pybroker.metadata.features import MAX_METADATA_RELEASE, MAX_METADATA_VERSION
from pybroker.protocol.definitions import SCHEMA_DIR
from pybroker.protocol.kafka_version import KAFKA_VERSION

ROOT = Path(__file__).parents[3]
MINOR = KAFKA_VERSION.rpartition(".")[0]

_MEASURED = "the figures were taken beside that version"
_RECORDED = "the data that the test holds us against came from that version"
_SINCE = "the version that brought or ended something"
_CONTROLLERS = "the other version of controllers that clusters are tested with"
_FORMATTED = "a version whose log dirs are opened"
#: Text to the versions that it names beside the reference, and why.
OLD: dict[str, tuple[set[str], str]] = {
    "csrc/log/walk/walk.c": ({"3.8"}, _FORMATTED),
    "csrc/tests/log/walk/test_walk.c": ({"3.8"}, _FORMATTED),
    "docs/append-engines.md": ({"4.3.0"}, _MEASURED),
    "docs/cluster.md": ({"3.9"}, _CONTROLLERS),
    "docs/doctor.md": ({"3.7"}, _SINCE),
    "docs/log-files.md": ({"0.11"}, _SINCE),
    "docs/quorum.md": ({"3.9"}, _CONTROLLERS),
    "docs/speed.md": ({"4.3.0"}, _MEASURED),
    "docs/upgrade.md": ({"3.3", "3.6", "3.9"}, _FORMATTED),
    "pybroker/cli/perf/perf_leavings.py": ({"2.0"}, _SINCE),
    "pybroker/cluster/log_dir_checks.py": ({"0.11"}, _SINCE),
    "pybroker/cluster/metadata_checks.py": ({"3.9"}, _SINCE),
    "pybroker/cluster/settings.py": ({"3.9"}, _CONTROLLERS),
    "pybroker/config/kept.py": ({"3.0"}, _SINCE),
    "pybroker/config/keys/retired.py": ({"0.8", "4.1"}, _SINCE),
    "pybroker/metadata/bootstrap.py": ({"3.3", "3.7", "3.9", "4.3"}, _FORMATTED),
    "pybroker/storage/files/meta_properties.py": ({"3.3", "3.6", "3.7"}, _SINCE),
    "tests/unit/config/data/README.md": ({"0.8.2"}, _RECORDED),
    "tests/unit/config/test_kept.py": ({"3.0"}, _SINCE),
    "tests/unit/config/test_notices.py": ({"3.9"}, _SINCE),
    "tests/unit/controller/test_formatted_dirs.py": ({"4.3"}, _RECORDED),
    "tests/unit/metadata/conftest.py": ({"4.3.0"}, _RECORDED),
    "tests/unit/protocol/test_record_batch.py": ({"4.3.0"}, _RECORDED),
    "tests/unit/storage/offline/data/make_kafka_dir.py": ({"4.3.0"}, _RECORDED),
    "tests/verify/kafka44/test_directory_ages.py": ({"3.3"}, _FORMATTED),
    "tests/verify/kafka44/test_formatted_dirs.py": ({"3.3"}, _FORMATTED),
    "tests/verify/kafka44/test_metadata_levels.py": ({"3.9"}, _FORMATTED),
}
_UNTOLD = "the lowest level at which controllers tell the cluster's id"
_LEVELS = "levels of older clusters that the test makes"
#: The same for names of metadata versions.
OLD_RELEASES: dict[str, tuple[set[str], str]] = {
    "docs/cluster.md": ({"3.9-IV0"}, _CONTROLLERS),
    "docs/quorum.md": ({"3.7-IV0", "3.9-IV0"}, _UNTOLD),
    "docs/upgrade.md": ({"3.3-IV3"}, _SINCE),
    "pybroker/cluster/settings.py": ({"3.9-IV0"}, _CONTROLLERS),
    "pybroker/controller/alter_user_scram_credentials.py": ({"3.5-IV2"}, _SINCE),
    "pybroker/quorum/start.py": ({"3.7-IV0"}, _UNTOLD),
    "pybroker/replication/fetcher_manager.py": ({"4.1-IV1"}, _SINCE),
    "tests/kafka/test_features.py": ({"4.0-IV3", "4.2-IV1"}, _LEVELS),
    "tests/unit/quorum/test_start.py": ({"3.7-IV0"}, _UNTOLD),
    "tests/verify/kafka44/test_metadata_levels.py": (
        {"3.3-IV3", "3.6-IV2", "3.7-IV2", "3.9-IV0", "4.0-IV3", "4.3-IV0"},
        _LEVELS,
    ),
}
#: Its sentences are about what was, and this file's are samples.
UNREAD = {"CHANGELOG.md", "tests/unit/protocol/test_kafka_version.py"}
_DIRECTORIES = ("bench", "csrc", "docs", "pybroker", "tests")
#: Whatever their suffixes.
_WHOLE_DIRECTORIES = (".ci", "deploy", "scripts")
_SUFFIXES = {".c", ".h", ".java", ".md", ".py", ".pyi", ".sh", ".txt"}
_GENERATED = {"generated", "build", "__pycache__"}
#: Lines of a comment or of a quotation are one text.
_LINE_ENDS = re.compile(r"\n[ \t]*(?:#:?|//|\*|>)?[ \t]*")
_BETWEEN = r"(?:of|version|versions|from|until|before|since|by|with|controllers?|brokers?|jars|nodes?|in|to|and)"
_VERSION = r"(\d+\.\d+(?:\.\d+)?)(?![\d.]*\d|-IV)"
_NAMED = re.compile(
    rf"\bKafkas?(?:'s)?(?:\W{{1,4}}{_BETWEEN}\b)*[\s(,:`'\"v]{{1,4}}{_VERSION}(?: (?:to|and|or) {_VERSION})?"
)
_RELEASE = re.compile(r"\b(\d+\.\d+-IV\d+)\b")


def _texts() -> Iterator[tuple[str, str]]:
    """Name and text of each, with every line of a paragraph joined."""
    found = [*ROOT.glob("*.md"), ROOT / "NOTICE", ROOT / "pyproject.toml", ROOT / "Makefile"]
    for directory in _DIRECTORIES:
        found += [path for path in (ROOT / directory).rglob("*") if path.suffix in _SUFFIXES and path.is_file()]
    for directory in _WHOLE_DIRECTORIES:
        found += [path for path in (ROOT / directory).rglob("*") if path.is_file()]
    for path in sorted(found):
        name = path.relative_to(ROOT)
        if not _GENERATED.intersection(name.parts) and str(name) not in UNREAD:
            yield str(name), _LINE_ENDS.sub(" ", path.read_text(encoding="utf-8"))


def _versions(text: str) -> set[str]:
    """Those of Apache Kafka that it names, without the reference's."""
    named = {version for pair in _NAMED.findall(text) for version in pair if version}
    return named - {MINOR, KAFKA_VERSION}


def _releases(text: str) -> set[str]:
    return set(_RELEASE.findall(text)) - {MAX_METADATA_RELEASE}


def test_texts_name_the_reference_alone() -> None:
    found = {name: versions for name, text in _texts() if (versions := _versions(text))}
    assert found == {name: versions for name, (versions, _why) in OLD.items()}


def test_texts_name_the_newest_metadata_version_alone() -> None:
    found = {name: releases for name, text in _texts() if (releases := _releases(text))}
    assert found == {name: releases for name, (releases, _why) in OLD_RELEASES.items()}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Apache Kafka 4.3 is", 1),
        ("Apache Kafka (4.2)", 1),
        ("Apache Kafka 4.3.0's", 1),
        ("Kafka's controllers (4.1), whose", 1),
        ("brokers of Kafka 3.3 to 4.3 made", 2),
        ("a broker of Apache\n# Kafka 4.3 joins", 1),
        ("the jars of Kafka\n    version 4.3.0", 1),
        (f"Apache Kafka {MINOR} and Kafka {KAFKA_VERSION}.", 0),
        ("Kafka answers after 2.2 s", 0),
    ],
)
def test_another_version_is_noticed(text: str, count: int) -> None:
    assert len(_versions(_LINE_ENDS.sub(" ", text))) == count


def test_every_kind_of_text_is_read() -> None:
    read = Counter(Path(name).parts[0] for name, _text in _texts())
    assert {"README.md", "NOTICE", "Makefile", "pyproject.toml", "docs", "pybroker", "csrc", "tests", "bench"} <= set(
        read
    )
    assert min(read[name] for name in ("docs", "pybroker", "csrc", "tests", "bench")) > 20


def test_the_message_table_and_the_makefile_are_of_that_version() -> None:
    heads = {path.read_text(encoding="utf-8").splitlines()[0] for path in SCHEMA_DIR.glob("*.schema")}
    assert len(heads) == 1
    assert f"Apache Kafka {KAFKA_VERSION};" in heads.pop()
    assert "pybroker/protocol/kafka_version.py" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_newest_level_is_that_of_the_reference() -> None:
    assert (KAFKA_VERSION, MAX_METADATA_VERSION) == ("4.4.0", 33)
    assert MAX_METADATA_RELEASE.startswith(f"{MINOR}-IV")


def test_clusters_are_made_with_controllers_of_the_reference_first() -> None:
    assert next(iter(RELEASES)) == KAFKA_VERSION
    for version, release in RELEASES.items():
        assert release.metadata_version.startswith(f"{version.rpartition('.')[0]}-IV")
