"""Requests about leaders, reassignments, quotas, credentials, features, voters and registrations, good and bad ones,
sent as `admin_script` sends its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from admin_script import NODE_ID, Session, Step

from pybroker.metadata.features import MAX_METADATA_VERSION
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
    yield step("twice", 2, _PREFERRED, [(_TOPIC, [0]), (_TOPIC, [1])])
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
    """What is asked is checked also when there are none."""

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


def altered_quotas() -> Iterator[Step]:
    """Good and bad alterations, each followed by what there is then."""

    def entry(entity: Iterable[tuple[str, str | None]], *ops: tuple[str, float | None]) -> Any:
        part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
        return m.AlterClientQuotasRequest.EntryData(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[op(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
        )

    def steps(name: str, *entries: Any, version: int = 1, validate: bool = False) -> Iterator[Step]:
        request = m.AlterClientQuotasRequest(entries=list(entries), validate_only=validate)
        yield Step(f"alter quotas: {name}, {version}", version, _always(request))
        described = m.DescribeClientQuotasRequest(components=[], strict=False)
        yield Step(f"quotas after: {name}", 1, _always(described), reads=True)

    ann, everyone = [("user", "ann")], [("user", None)]
    app, home = [("client-id", "app")], [("ip", "127.0.0.1")]
    rates = [("producer_byte_rate", 1000.0), ("consumer_byte_rate", 2000.0)]
    own = [("request_percentage", 0.5), ("controller_mutation_rate", 1.25)]
    for version in range(2):
        yield from steps("a user", entry(ann, *rates), version=version)
        yield from steps("all of a user", entry(ann, *rates, *own), version=version)
        yield from steps("validated", entry(app, *rates), version=version, validate=True)
        yield from steps("a client", entry(app, *own), version=version)
    yield from steps("a user's client", entry([*ann, *app], *rates), entry([("client-id", None), *ann], *own))
    yield from steps("defaults", entry(everyone, *rates), entry([("client-id", None)], *rates))
    yield from steps("both defaults", entry([("client-id", None), *everyone], *rates))
    yield from steps("default and a name", entry([*app, *everyone], rates[0]))
    yield from steps("addresses", entry(home, ("connection_creation_rate", 7.0)), entry([("ip", None)]))
    yield from steps("default address", entry([("ip", None)], ("connection_creation_rate", 2.0**31 - 1)))
    for address in ("::1", "[::1]", "localhost", "nowhere.invalid", "127.1", "1.2.3.999", " ", "10.0.0.0/8"):
        yield from steps(f"address {address}", entry([("ip", address)], ("connection_creation_rate", 7.0)))
    yield from steps("nothing")
    yield from steps("no changes", entry(ann))
    yield from steps("no entity", entry([], *rates))
    yield from steps("unknown kind", entry([("group", "g")], *rates), entry([*ann, ("group", "g")], *rates))
    for kind in ("user", "client-id", "ip"):
        yield from steps(f"empty {kind}", entry([(kind, "")], *rates), entry([(kind, "")]))
    yield from steps("address and user", entry([*home, *ann], *rates), entry([*home, *app], *rates))
    yield from steps("a kind twice", entry([("user", "bob"), ("user", "eve")], *rates))
    yield from steps("an entity twice", entry([("user", "zoe")], rates[0]), entry([("user", "zoe")], rates[1]))
    yield from steps("a refused entity twice", entry([("user", "z")], ("x", 1.0)), entry([("user", "z")], *rates))
    yield from steps("a key twice", entry([("user", "kim")], rates[0], rates[0]))
    for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
        for value in (0.0, -0.0, -1.0, 0.4, 1.0000001, 1.1, 2.0**63, 1e19, math.inf, -math.inf, math.nan):
            yield from steps(f"{key} {value}", entry([("user", "num")], (key, value), rates[1]))
    for value in (0.0, -1.0, 1.5, 2.0**31 - 1, 2.0**31, 1.0):
        yield from steps(f"connections {value}", entry(home, ("connection_creation_rate", value)))
    yield from steps("unknown keys", entry(ann, ("no.such.key", 1.0)), entry(home, ("", 1.0)), entry(app, *rates))
    yield from steps("of others", entry(ann, ("connection_creation_rate", 1.0)), entry(home, *rates))
    yield from steps(
        "unknown key removed", entry(ann, ("no.such.key", None)), entry(home, ("consumer_byte_rate", None))
    )
    yield from steps("removed", entry(ann, (rates[0][0], None)), entry(app, (own[0][0], None), (own[1][0], None)))
    yield from steps("removed again", entry(ann, (rates[0][0], None)), entry([("user", "nobody")], (own[0][0], None)))
    yield from steps("odd names", entry([("user", "a/b %<default>"), ("client-id", "\u00e9\u4e2d")], *rates))


def altered_credentials() -> Iterator[Step]:
    """Good and bad alterations, each followed by what there is then."""
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion

    def drop(name: str, mechanism: int = 1) -> Any:
        return deletion(name=name, mechanism=mechanism)

    def put(name: str, mechanism: int = 1, iterations: int = 4096, **fields: bytes) -> Any:
        secret = {"salt": b"salt", "salted_password": b"secret", **fields}
        return upsertion(name=name, mechanism=mechanism, iterations=iterations, **secret)

    def steps(name: str, *alterations: Any) -> Iterator[Step]:
        request = m.AlterUserScramCredentialsRequest(
            deletions=[each for each in alterations if isinstance(each, deletion)],
            upsertions=[each for each in alterations if isinstance(each, upsertion)],
        )
        yield Step(f"alter credentials: {name}", 0, _always(request))
        yield Step(f"credentials after: {name}", 0, _always(m.DescribeUserScramCredentialsRequest()), reads=True)

    yield from steps("nothing")
    yield from steps("two users", put("ann"), put("bob", 2, 16384))
    yield from steps("another mechanism", put("ann", 2))
    yield from steps("more iterations", put("ann", 1, 5000))
    for iterations in (-1, 0, 4095, 16385, 2**31 - 1):
        yield from steps(f"{iterations} iterations", put("cid", 1, iterations), put("cid2", 2, iterations))
    for mechanism in (-1, 0, 3, 127):
        yield from steps(f"mechanism {mechanism}", put("dan", mechanism), drop("ann", mechanism))
    yield from steps("empty name", put(""), drop(""))
    yield from steps("odd names", put("a,b=c/d"), put("\u00e9\u4e2d"))
    yield from steps("no salt", put("eve", salt=b""))
    yield from steps("no password", put("fay", salted_password=b""), put("gil"))
    yield from steps("a user twice", put("ann"), put("ann", 2))
    yield from steps("deleted and set", drop("ann"), put("ann", 2))
    yield from steps("deleted twice", drop("ann"), drop("ann", 2))
    yield from steps("deleted twice and set", drop("ann"), drop("ann", 2), put("ann"))
    yield from steps("refused and set", put("hal", 9), put("hal"))
    yield from steps("deletion refused and set", drop("nobody"), put("nobody"))
    yield from steps("deleted", drop("ann"), drop("bob", 2), drop("bob", 1), drop("nobody"))
    yield from steps("deleted alone", drop("bob", 2))
    for names in (["ann"], ["ann", "bob"], ["ann", "ann", "gil"]):
        users = [m.DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
        request = m.DescribeUserScramCredentialsRequest(users=users)
        yield Step(f"credentials of {names}", 0, _always(request), reads=True)


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
        yield step("as it is", version, (_METADATA, MAX_METADATA_VERSION, _UPGRADE))
        yield step("lower", version, (_METADATA, MAX_METADATA_VERSION - 1, _UPGRADE))
        yield step("lower, allowed", version, (_METADATA, MAX_METADATA_VERSION - 1, _SAFE))
        yield step("unknown", version, ("no.such.version", 1, _UPGRADE))
        yield step("good and bad", version, (_METADATA, MAX_METADATA_VERSION, _UPGRADE), ("no.such.version", 0, _SAFE))
    for kind in (0, _UPGRADE, _SAFE, _UNSAFE, 4, -1):
        for level in (-1, 0, 6, 7, 22, *range(29, MAX_METADATA_VERSION + 2)):
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
    itself = m.UnregisterControllerRequest(controller_id=NODE_ID)
    yield Step("unregister controller: itself", 0, _always(itself))
    for broker_id in (7, -1):
        yield Step(f"unregister: {broker_id}", 0, _always(m.UnregisterBrokerRequest(broker_id=broker_id)))
        controller = m.UnregisterControllerRequest(controller_id=broker_id)
        yield Step(f"unregister controller: {broker_id}", 0, _always(controller))
    gone = m.DeleteGroupsRequest(groups_names=["no such group"])
    yield from (Step(f"delete groups: {version}", version, _always(gone)) for version in range(4))


def identities() -> Iterator[Step]:
    """Clients that say which node of which cluster they want (KIP-1242)."""
    for cluster_id, node_id in ((None, NODE_ID), ("another", -1), ("another", NODE_ID), ("another", NODE_ID + 1)):
        software = {"client_software_name": "test", "client_software_version": "1"}
        request = m.ApiVersionsRequest(**software, cluster_id=cluster_id, node_id=node_id)
        yield Step(f"identity: {cluster_id} {node_id}", 5, _always(request))


def cluster_script() -> Iterator[Step]:
    """All steps."""
    yield from prepare()
    yield from elections()
    yield from reassignments()
    yield from quotas()
    yield from altered_quotas()
    yield from quotas()
    yield from credentials()
    yield from altered_credentials()
    yield from feature_updates()
    yield from voters()
    yield from registrations()
    yield from identities()
