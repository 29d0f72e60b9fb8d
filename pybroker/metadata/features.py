"""Feature levels: what we finalise in a new log dir, what we can serve, and which record versions a level allows.

Facts of Apache Kafka 4.4 (KIP-584, KIP-853, KIP-1022). Pure.
"""

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

MIN_METADATA_VERSION = 7
MAX_METADATA_VERSION = 33
#: Kafka's name of that level.
MAX_METADATA_RELEASE = "4.4-IV2"
#: The level from which on there are transactions of metadata (KIP-868).
TRANSACTIONS_LEVEL = 13
#: The level from which on controllers can be unregistered.
UNREGISTER_CONTROLLER_LEVEL = 33

SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (MIN_METADATA_VERSION, MAX_METADATA_VERSION),
    KRAFT_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Feature name to (lowest, highest) level this broker serves; any other feature is served at level 0 only."""

DEPENDENCIES: Mapping[tuple[str, int], Mapping[str, int]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23},
}
"""Feature and level to the least levels of other features that it needs."""

OFF = (0, 0)
"""Levels of a feature that is not served."""

UNSERVED = ("group.version", "share.version", "streams.version", "transaction.version")
"""The other features of Apache Kafka 4.4."""

BOOTSTRAP_LEVELS: Mapping[str, int] = {METADATA_VERSION: MAX_METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION: 1}
"""Levels written into a new log dir: what Kafka's `kafka-storage format` writes of the features that are served here.
kraft.version is no feature record: it goes into a control record."""


def upgrade_command(name: str) -> str:
    """The command that raises a feature to the level of a new cluster; other features keep theirs."""
    return f"kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature {name}={BOOTSTRAP_LEVELS[name]}"


UPGRADE_COMMAND = upgrade_command(METADATA_VERSION)

DEFAULT_LEVELS: Mapping[str, int] = {METADATA_VERSION: MAX_METADATA_VERSION}
"""Levels of a new cluster whose log dir names none, as in Kafka."""

# Record name to (lowest metadata.version, record version), ascending.
_RECORD_VERSIONS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((7, 1), (8, 2), (17, 3), (30, 4)),
    "BrokerRegistrationChangeRecord": ((7, 1), (17, 2), (30, 3)),
    "PartitionRecord": ((7, 0), (17, 1), (23, 2)),
    "PartitionChangeRecord": ((7, 0), (17, 1), (23, 2)),
}

#: Levels of metadata.version that brought records, or fields of records, which the level before does not know.
_RECORDS_CHANGED = frozenset({8, 11, 13, 14, 15, 17, 23, 30, 32, 33})


def are_records_changed(lower: int, upper: int) -> bool:
    """Whether metadata of the one metadata.version may say what the other has no records for."""
    return any(lower < level <= upper for level in _RECORDS_CHANGED)


def record_version(record_name: str, metadata_version: int) -> int:
    """The version to write a metadata record with, so that every node at `metadata_version` can read it."""
    version = 0
    for lowest_level, record_version_there in _RECORD_VERSIONS.get(record_name, ()):
        if metadata_version >= lowest_level:
            version = record_version_there
    return version


def unserved(levels: Mapping[str, int]) -> dict[str, int]:
    """The finalised features (name to level) above what this broker serves."""
    return {name: level for name, level in levels.items() if level > SUPPORTED.get(name, OFF)[1]}
