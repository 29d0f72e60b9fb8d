"""Requests about leaders, reassignments, quotas, credentials, features, voters and registrations, good and bad ones,
sent as `admin_script` sends its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from admin_script import NODE_ID, Session, Step

from pybroker.protocol import messages as m

_TOPIC = "led"
_PREFERRED, _UNCLEAN = 0, 1
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3
_METADATA = "metadata.version"
_ELSEWHERE = b"\1" * 16


def _always(request: m.Message) -> Callable[[Session], m.Message]:
    return lambda _: request


def prepare() -> Iterator[Step]:
    topic = m.CreateTopicsRequest.CreatableTopic(name=_TOPIC, num_partitions=2, replication_factor=1)
    yield Step("create: led", 7, _always(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)))


def elections() -> Iterator[Step]:
    """A single node leads all it has: there is never anything to elect."""

    def step(name: str, version: int, kind: int, topics: list[tuple[str, list[int]]] | None) -> Step:
        wanted = None
        if topics is not None:
            rows = m.ElectLeadersRequest.TopicPartitions
            wanted = [rows(topic=topic, partitions=indexes) for topic, indexes in topics]
        # Version 0 has no kind.
        fields = {} if version == 0 else {"election_type": kind}
        return Step(
            f"elect: {name}, {version}", version, _always(m.ElectLeadersRequest(topic_partitions=wanted, **fields))
        )

    for version in range(3):
        yield step("led already", version, _PREFERRED, [(_TOPIC, [0, 1])])
        yield step("all", version, _PREFERRED, None)
    for kind in (_PREFERRED, _UNCLEAN):
        yield step(f"unknown, kind {kind}", 2, kind, [(_TOPIC, [0, 77]), ("absent", [0]), ("a b", [0])])
        yield step(f"all, kind {kind}", 2, kind, None)
    yield step("nothing", 2, _PREFERRED, [])
    yield step("no partitions", 2, _PREFERRED, [(_TOPIC, [])])
    yield step("unknown kind", 2, 5, [(_TOPIC, [0])])


def reassignments() -> Iterator[Step]:
    def alter(name: str, version: int, *wanted: tuple[str, int, list[int] | None]) -> Step:
        rows = [
            m.AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
                ],
            )
            for topic, index, replicas in wanted
        ]
        request = m.AlterPartitionReassignmentsRequest(topics=rows, timeout_ms=60_000)
        return Step(f"reassign: {name}, {version}", version, _always(request))

    for version in range(2):
        yield alter("as it is", version, (_TOPIC, 0, [NODE_ID]))
    yield alter("cancel", 1, (_TOPIC, 0, None))
    yield alter("unknown", 1, (_TOPIC, 77, [NODE_ID]), ("absent", 0, [NODE_ID]), ("absent", 1, None))
    yield alter("bad replicas", 1, (_TOPIC, 0, []))
    yield alter("replica twice", 1, (_TOPIC, 0, [NODE_ID, NODE_ID]))
    yield alter("unknown broker", 1, (_TOPIC, 0, [77]), (_TOPIC, 1, [NODE_ID, 77]))
    yield alter("nothing", 1)
    for topics in (None, [(_TOPIC, [0, 77])], [("absent", [0])], []):
        wanted = None
        if topics is not None:
            row = m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
            wanted = [row(name=topic, partition_indexes=indexes) for topic, indexes in topics]
        request = m.ListPartitionReassignmentsRequest(topics=wanted)
        yield Step(f"reassignments: {topics}", 0, _always(request), reads=True)


def quotas() -> Iterator[Step]:
    """There are none; what is asked is checked all the same."""

    def step(name: str, version: int, *parts: tuple[str, int, str | None], strict: bool = False) -> Step:
        row = m.DescribeClientQuotasRequest.ComponentData
        components = [row(entity_type=entity, match_type=kind, match=match) for entity, kind, match in parts]
        request = m.DescribeClientQuotasRequest(components=components, strict=strict)
        return Step(f"quotas: {name}, {version}", version, _always(request), reads=True)

    for version in range(2):
        yield step("all", version)
        yield step("of a user", version, ("user", _EXACT, "ann"))
    yield step("all, strict", 1, strict=True)
    yield step("of each kind", 1, ("user", _ANY, None), ("client-id", _DEFAULT, None), strict=True)
    yield step("of an address", 1, ("ip", _DEFAULT, None))
    yield step("address and user", 1, ("ip", _ANY, None), ("user", _ANY, None))
    yield step("empty kind", 1, ("", _ANY, None))
    yield step("unknown kind", 1, ("group", _ANY, None))
    yield step("kind twice", 1, ("user", _ANY, None), ("user", _EXACT, "ann"))
    yield step("exactly nothing", 1, ("user", _EXACT, None))
    yield step("default with a name", 1, ("user", _DEFAULT, "ann"))
    yield step("any with a name", 1, ("user", _ANY, "ann"))
    yield step("unknown match", 1, ("user", 9, None))


def credentials() -> Iterator[Step]:
    for names in (None, [], ["ann"], ["ann", "ann"], [""], ["bob", "ann"]):
        users = None
        if names is not None:
            users = [m.DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
        request = m.DescribeUserScramCredentialsRequest(users=users)
        yield Step(f"credentials: {names}", 0, _always(request), reads=True)


def feature_updates() -> Iterator[Step]:
    """Of levels that both brokers have, and serve."""

    def step(name: str, version: int, *wanted: tuple[str, int, int], validate: bool = False) -> Step:
        row = m.UpdateFeaturesRequest.FeatureUpdateKey
        if version == 0:
            rows = [
                row(feature=feature, max_version_level=level, allow_downgrade=kind != _UPGRADE)
                for feature, level, kind in wanted
            ]
            return Step(f"features: {name}, 0", 0, _always(m.UpdateFeaturesRequest(feature_updates=rows)))
        rows = [row(feature=feature, max_version_level=level, upgrade_type=kind) for feature, level, kind in wanted]
        request = m.UpdateFeaturesRequest(feature_updates=rows, validate_only=validate)
        return Step(f"features: {name}, {version}", version, _always(request))

    for version in range(3):
        yield step("nothing", version)
        yield step("as it is", version, (_METADATA, 30, _UPGRADE))
        yield step("lower", version, (_METADATA, 29, _UPGRADE))
        yield step("lower, allowed", version, (_METADATA, 29, _SAFE))
        yield step("unknown", version, ("no.such.version", 1, _UPGRADE))
        yield step("good and bad", version, (_METADATA, 30, _UPGRADE), ("no.such.version", 0, _SAFE))
    for kind in (0, _UPGRADE, _SAFE, _UNSAFE, 4, -1):
        for level in (-1, 0, 6, 7, 22, 29, 30, 31):
            yield step(f"metadata {level}, kind {kind}", 2, (_METADATA, level, kind), validate=True)
        for level in (-1, 0, 1, 2):
            yield step(f"kraft {level}, kind {kind}", 2, ("kraft.version", level, kind), validate=True)
        for level in (-1, 9):
            yield step(f"group {level}, kind {kind}", 2, ("group.version", level, kind), validate=True)
        yield step(f"unknown, kind {kind}", 2, ("no.such.version", 0, kind), ("", 0, kind))


def voters() -> Iterator[Step]:
    """The quorum is the node itself, and stays that."""
    listener = m.AddRaftVoterRequest.Listener
    reached = [listener(name="CONTROLLER", host="127.0.0.1", port=9)]

    def add(name: str, version: int, **fields: Any) -> Step:
        wanted = {"cluster_id": None, "timeout_ms": 1000, "voter_id": 7, "voter_directory_id": _ELSEWHERE}
        request = m.AddRaftVoterRequest(**{**wanted, "listeners": reached, **fields})
        return Step(f"voter: {name}, {version}", version, _always(request))

    def remove(name: str, **fields: Any) -> Step:
        wanted = {"cluster_id": None, "voter_id": 7, "voter_directory_id": _ELSEWHERE}
        return Step(f"voter: {name}", 0, _always(m.RemoveRaftVoterRequest(**{**wanted, **fields})))

    for version in range(2):
        yield add("there already", version, voter_id=NODE_ID)
        yield add("without listener", version, listeners=[])
        yield add("at another listener", version, listeners=[listener(name="OTHER", host="127.0.0.1", port=9)])
        yield add("of another cluster", version, cluster_id="x" * 22)
        yield add("without id", version, voter_id=-1)
        yield add("without directory", version, voter_directory_id=bytes(16))
    yield remove("unknown")
    yield remove("in another directory", voter_id=NODE_ID)
    yield remove("of another cluster", cluster_id="x" * 22)
    yield remove("without id", voter_id=-1)
    yield remove("without directory", voter_directory_id=bytes(16))


def registrations() -> Iterator[Step]:
    for broker_id in (7, -1):
        yield Step(f"unregister: {broker_id}", 0, _always(m.UnregisterBrokerRequest(broker_id=broker_id)))


def cluster_script() -> Iterator[Step]:
    """All steps; after the first, nothing of what they ask changes anything."""
    yield from prepare()
    yield from elections()
    yield from reassignments()
    yield from quotas()
    yield from credentials()
    yield from feature_updates()
    yield from voters()
    yield from registrations()
