"""A story that Apache Kafka's command line tools tell of clusters of three brokers; that of one is `tool_script`.

Brokers have the ids 1 to 3 in each cluster, and controllers decide where replicas go unless they are told: so the story
tells them. Between the steps brokers stop and start, and a member of a group is there and leaves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from admin_script import OWN_SETTINGS
from confluent_kafka import Consumer
from tool_script import CONFIGS, GROUPS, TOOLS, Step

from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.scenario import wait_until_healthy

_TOPICS = f"{TOOLS}TopicCommand"
_REASSIGN = f"{TOOLS}reassign.ReassignPartitionsCommand"
_ELECTION = f"{TOOLS}LeaderElectionCommand"
_QUORUM = f"{TOOLS}MetadataQuorumCommand"
_CLUSTER = f"{TOOLS}ClusterTool"
_LOG_DIRS = f"{TOOLS}LogDirsCommand"
_OFFSETS = f"{TOOLS}GetOffsetShell"
_CONSUMER = f"{TOOLS}consumer.ConsoleConsumer"
_MEMBER = "member"
_PATIENCE_MS = "30000"
_MEMBER_SECONDS = 60.0
#: In topic `one`, after the first three of eight were deleted.
_LEFT_COUNT = 5
_NOT_SERVED = {"group.version", "share.version", "streams.version", "transaction.version"}
#: What a JVM of a local cluster is started with, and a broker of pybroker is not, or the other way round.
_STARTED_WITH = OWN_SETTINGS | {
    "background.threads",
    "log.cleaner.dedupe.buffer.size",
    "num.io.threads",
    "num.network.threads",
    "transaction.partition.verification.enable",
}


@dataclass
class ClusterSide:
    """One of the clusters. `scratch` is a dir for files that tools read."""

    name: str
    cluster: LocalCluster
    scratch: Path
    members: list[Consumer] = field(default_factory=list)

    def filled(self, argument: str) -> str:
        """An argument with this cluster's values in it."""
        layout = self.cluster.layout
        named = argument.replace("{bootstrap}", layout.bootstrap).replace("{scratch}", str(self.scratch))
        return named.replace("{controllers}", layout.controller_bootstrap)

    def normalised(self, output: str) -> str:
        """Without what names this cluster, its nodes and their times."""
        for node in self.cluster.layout.nodes:
            output = output.replace(str(self.cluster.log_dir(node.node_id)), f"DIR{node.node_id}")
            output = output.replace(node.address, f"NODE{node.node_id}")
            output = re.sub(rf"\b{node.port}\b", f"PORT{node.node_id}", output)
        output = output.replace(str(self.scratch), "SCRATCH")
        output = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", output)
        output = re.sub(r"(?<![\w-])(?=[\w-]*[A-Z0-9_-])[\w-]{22}(?![\w-])", "ID", output)
        return re.sub(r"\b1[6-9]\d{11}\b", "TIME", output)


@dataclass(frozen=True)
class Action:
    """Something that happens to each cluster between the steps."""

    name: str
    run: Callable[[ClusterSide], None]


Scene = Step | Action


def comparable(step: Step, side: ClusterSide, status: int, output: str) -> tuple[int, list[str]]:
    """Exit status and lines, the same for all clusters if they say the same. Columns are as wide as what is in them."""
    if step.is_refused:
        return status, sorted(set(re.findall(r"\w+Exception", output)))
    lines = (re.sub(r"\s+", " ", line).strip() for line in side.normalised(output).splitlines())
    return status, step.view([line for line in lines if line])


def _does(tool: str, *arguments: str, view: Callable[[list[str]], list[str]] = lambda lines: lines) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments), view=view)


def _reads(tool: str, *arguments: str, view: Callable[[list[str]], list[str]] = lambda lines: lines) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments), reads=True, view=view)


def _refused(tool: str, *arguments: str) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments), is_refused=True)


# --- views ------------------------------------------------------------------------------------------------------------


def _sorted(lines: list[str]) -> list[str]:
    return sorted(lines)


def _words(lines: list[str]) -> list[str]:
    """Without numbers: what is placed by chance, offsets of a metadata log, epochs."""
    return [re.sub(r"-?\b\d+\b", "N", line) for line in lines]


def _elected(lines: list[str]) -> list[str]:
    """Words, and the partitions named, but for those of the topic whose leaders are where chance has put them."""
    named = {each for line in lines for each in re.findall(r"\b\w+-\d+\b", line) if not each.startswith("drawn-")}
    return [*(re.split(r" \w+-\d+", line)[0] for line in lines), *sorted(named)]


def _sorted_words(lines: list[str]) -> list[str]:
    return sorted(_words(lines))


def _features(lines: list[str]) -> list[str]:
    """Those that are finalised, or served by both: pybroker tells of no other."""
    return [line for line in _words(lines) if line.split()[1] not in _NOT_SERVED]


def _settings(lines: list[str]) -> list[str]:
    names = [(line.partition("=")[0], line) for line in lines]
    return sorted(line for name, line in names if name not in _STARTED_WITH and not name.startswith("pybroker."))


def _sent(lines: list[str]) -> list[str]:
    """How many records were sent, without how fast."""
    return lines[-1].split(",")[:1]


def _log_dirs(lines: list[str]) -> list[str]:
    """The JSON in what the tool says, in an order; internal topics are written to at any time."""
    found = []
    for line in lines:
        if not line.startswith("{"):
            found.append(line)
            continue
        for broker in json.loads(line)["brokers"]:
            for directory in broker["logDirs"]:
                found += [
                    f"{broker['broker']} {directory['logDir']} {directory['error']} {sorted(partition.items())}"
                    for partition in directory["partitions"]
                ]
    return sorted(found)


def _proposal(lines: list[str]) -> list[str]:
    """Which partitions a plan has, and with how many replicas: who gets them is drawn."""
    found = []
    for line in lines:
        if not line.startswith("{"):
            found.append(line)
            continue
        for each in json.loads(line)["partitions"]:
            found.append(f"{each['topic']}-{each['partition']}: {len(each['replicas'])} {each['log_dirs']}")
    return sorted(found)


# --- what happens in between ------------------------------------------------------------------------------------------


def _stop(node_id: int) -> Action:
    def run(side: ClusterSide) -> None:
        side.cluster.stop(node_id)

    return Action(f"broker {node_id} stops", run)


def _start(node_id: int) -> Action:
    def run(side: ClusterSide) -> None:
        side.cluster.start(node_id)
        wait_until_healthy(side.cluster)

    return Action(f"broker {node_id} starts", run)


def _join(side: ClusterSide) -> None:
    settings = {"group.id": "live", "client.id": _MEMBER, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": side.cluster.layout.bootstrap, "log_level": 2, **settings})
    consumer.subscribe(["one"])
    side.members.append(consumer)
    assert len(consumer.consume(_LEFT_COUNT, timeout=_MEMBER_SECONDS)) == _LEFT_COUNT
    consumer.commit(asynchronous=False)


def leave(side: ClusterSide) -> None:
    """Have the members of groups leave, if there are any."""
    while side.members:
        side.members.pop().close()


# --- the story --------------------------------------------------------------------------------------------------------


def write_inputs(side: ClusterSide) -> None:
    """The files that tools read."""
    side.scratch.mkdir()

    def write(name: str, content: object) -> None:
        side.scratch.joinpath(name).write_text(json.dumps(content))

    def move(topic: str, partition: int, *replicas: int) -> dict[str, object]:
        return {"version": 1, "partitions": [{"topic": topic, "partition": partition, "replicas": replicas}]}

    side.scratch.joinpath("lines").write_text("".join(f"key-{index}:value-{index}\n" for index in range(8)))
    write("delete.json", {"version": 1, "partitions": [{"topic": "one", "partition": 0, "offset": 3}]})
    write("topics.json", {"version": 1, "topics": [{"topic": "story"}]})
    write("move.json", move("story", 0, 3, 2))
    write("back.json", move("story", 0, 1, 2, 3))
    write("hold.json", move("held", 0, 2, 3))
    write("strange.json", move("story", 0, 1, 7))


def topics() -> Iterator[Step]:
    story = ("--topic", "story")
    placed = "1:2:3,2:3:1,3:1:2"
    compacted = ("--config", "cleanup.policy=compact", "--config", "compression.type=producer")
    # As many as offsets.topic.num.partitions says: a JVM goes by that until its next start.
    offsets = ("--topic", "__consumer_offsets", "--replica-assignment", f"{placed},1:3:2")
    yield _does(_TOPICS, "--create", *offsets, *compacted)
    yield _does(_TOPICS, "--create", *story, "--replica-assignment", placed, "--config", "retention.ms=-1")
    yield _does(_TOPICS, "--create", "--topic", "one", "--replica-assignment", "1:2:3")
    yield _does(_TOPICS, "--create", "--topic", "held", "--replica-assignment", "1:2")
    yield _does(_TOPICS, "--create", "--topic", "drawn", "--partitions", "5", "--replication-factor", "2")
    yield _refused(_TOPICS, "--create", *story)
    yield _refused(_TOPICS, "--create", "--topic", "four", "--replication-factor", "4")
    yield _refused(_TOPICS, "--create", "--topic", "nowhere", "--replica-assignment", "1:9")
    yield _refused(_TOPICS, "--create", "--topic", "twice", "--replica-assignment", "1:1")
    yield _does(_TOPICS, "--alter", *story, "--partitions", "4", "--replica-assignment", f"{placed},1:3:2")
    yield _refused(_TOPICS, "--alter", *story, "--partitions", "2")
    yield _reads(_TOPICS, "--list")
    yield _reads(_TOPICS, "--list", "--exclude-internal")
    yield _reads(_TOPICS, "--describe", *story)
    yield _reads(_TOPICS, "--describe", "--topic", "drawn", view=_words)
    yield _reads(_TOPICS, "--describe", "--topics-with-overrides")
    yield _does(_TOPICS, "--create", "--topic", "short-lived", "--partitions", "3", "--replication-factor", "3")
    yield _does(_TOPICS, "--delete", "--topic", "short-lived")
    yield _refused(_TOPICS, "--delete", "--topic", "short-lived-too")
    yield _reads(_TOPICS, "--list")


def configs() -> Iterator[Step]:
    topic, brokers = ("--entity-type", "topics", "--entity-name", "story"), ("--entity-type", "brokers")
    yield _does(CONFIGS, *topic, "--alter", "--add-config", "max.message.bytes=5000,min.insync.replicas=2")
    yield _reads(CONFIGS, *topic, "--describe")
    yield _reads(CONFIGS, *topic, "--describe", "--all", view=_settings)
    yield _refused(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=soon")
    for node_id in ("1", "2"):
        alter = ("--alter", "--add-config", f"log.cleaner.threads={node_id}")
        yield _does(CONFIGS, *brokers, "--entity-name", node_id, *alter)
    yield _does(CONFIGS, *brokers, "--entity-default", "--alter", "--add-config", "message.max.bytes=900000")
    yield _reads(CONFIGS, *brokers, "--entity-default", "--describe", view=_settings)
    yield _reads(CONFIGS, *brokers, "--describe", view=_settings)
    yield _reads(CONFIGS, *brokers, "--entity-name", "2", "--describe", "--all", view=_settings)
    yield _refused(CONFIGS, *brokers, "--entity-name", "1", "--alter", "--add-config", "node.id=3")
    yield _does(CONFIGS, *brokers, "--entity-default", "--alter", "--delete-config", "message.max.bytes")
    clients = ("--entity-type", "clients", "--entity-name", "slow")
    yield _does(CONFIGS, *clients, "--alter", "--add-config", "producer_byte_rate=1000000,consumer_byte_rate=2000000")
    yield _reads(CONFIGS, *clients, "--describe")
    user = ("--entity-type", "users", "--entity-name", "ada")
    yield _does(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
    yield _reads(CONFIGS, *user, "--describe")
    yield _does(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    yield _reads(CONFIGS, "--entity-type", "users", "--describe")
    yield _refused(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    yield _reads(CONFIGS, "--entity-type", "client-metrics", "--describe")
    yield _reads(CONFIGS, "--entity-type", "groups", "--describe")


def records() -> Iterator[Step]:
    parsed = [word for each in ("parse.key=true", "key.separator=:") for word in ("--reader-property", each)]
    for topic in ("one", "story"):
        keyed = ("--topic", topic, "--sync", "--timeout", "0", *parsed)
        yield _does(f"{TOOLS}ConsoleProducer", *keyed, "<{scratch}/lines")
    for topic in ("one", "story"):
        reading = ("--topic", topic, "--from-beginning", "--group", "readers", "--max-messages", "8")
        yield _does(_CONSUMER, *reading, "--timeout-ms", _PATIENCE_MS, view=_sorted)
    load = ("--topic", "held", "--num-records", "5000", "--record-size", "1000", "--throughput", "-1")
    yield Step(f"{TOOLS}ProducerPerformance", ("--bootstrap-server", "{bootstrap}", *load), view=_sent)
    for moment in ("latest", "earliest"):
        yield _reads(_OFFSETS, "--time", moment, "--topic-partitions", "story,one,held", view=_sorted)
    yield _does(f"{TOOLS}DeleteRecordsCommand", "--offset-json-file", "{scratch}/delete.json")
    yield _reads(_OFFSETS, "--topic", "one", "--time", "earliest")
    yield _reads(_LOG_DIRS, "--describe", "--topic-list", "one,story", view=_log_dirs)
    yield _reads(_LOG_DIRS, "--describe", "--topic-list", "one", "--broker-list", "2,3", view=_log_dirs)


def groups() -> Iterator[Scene]:
    yield Action("a member joins", _join)
    for what in ("--offsets", "--members", "--state"):
        yield _reads(GROUPS, "--group", "live", "--describe", what)
    yield _reads(GROUPS, "--group", "live", "--describe", "--members", "--verbose")
    yield _refused(GROUPS, "--group", "live", "--topic", "one", "--reset-offsets", "--to-earliest", "--execute")
    yield _refused(GROUPS, "--group", "live", "--delete")
    yield Action("it leaves", leave)
    yield _reads(GROUPS, "--list", "--state", view=_sorted)
    yield _reads(GROUPS, "--all-groups", "--describe", view=_sorted)
    yield _reads(GROUPS, "--all-groups", "--describe", "--state", view=_sorted)
    for target in (("--to-earliest",), ("--shift-by", "-1"), ("--to-offset", "2")):
        reset = ("--group", "readers", "--topic", "story", "--topic", "one", "--reset-offsets", *target)
        yield _does(GROUPS, *reset, "--dry-run", view=_sorted)
        yield _does(GROUPS, *reset, "--execute", view=_sorted)
    yield _reads(GROUPS, "--group", "readers", "--describe", view=_sorted)
    yield _does(GROUPS, "--group", "readers", "--delete-offsets", "--topic", "one")
    yield _does(GROUPS, "--group", "live", "--delete")
    yield _refused(GROUPS, "--group", "live", "--describe")
    yield _reads(GROUPS, "--list")


def reassignments() -> Iterator[Step]:
    def file(name: str) -> tuple[str, str]:
        return "--reassignment-json-file", f"{{scratch}}/{name}.json"

    moving = ("--topics-to-move-json-file", "{scratch}/topics.json", "--broker-list", "1,2")
    yield _reads(_REASSIGN, "--generate", *moving, view=_proposal)
    yield _reads(_REASSIGN, "--list")
    yield _does(_REASSIGN, "--execute", *file("move"), "--throttle", "100000000")
    yield _reads(_REASSIGN, "--verify", *file("move"))
    yield _reads(_TOPICS, "--describe", "--topic", "story")
    yield _does(_REASSIGN, "--execute", *file("back"))
    yield _reads(_REASSIGN, "--verify", *file("back"))
    yield _reads(_TOPICS, "--describe", "--topic", "story")
    yield _refused(_REASSIGN, "--execute", *file("strange"))
    yield _does(_REASSIGN, "--execute", *file("hold"), "--throttle", "1000")
    yield _reads(_REASSIGN, "--list")
    yield _reads(_TOPICS, "--describe", "--topic", "held")
    yield _reads(_REASSIGN, "--verify", "--preserve-throttles", *file("hold"))
    yield _refused(_REASSIGN, "--execute", *file("hold"))
    yield _does(_REASSIGN, "--cancel", *file("hold"))
    yield _reads(_REASSIGN, "--list")
    yield _reads(_TOPICS, "--describe", "--topic", "held")
    yield _reads(CONFIGS, "--entity-type", "brokers", "--describe", view=_settings)


def elections() -> Iterator[Scene]:
    preferred, unclean = ("--election-type", "preferred"), ("--election-type", "unclean")
    yield _does(_ELECTION, *preferred, "--all-topic-partitions", view=_elected)
    yield _stop(1)
    yield _reads(_TOPICS, "--describe", "--topic", "story")
    yield _reads(_TOPICS, "--describe", "--topic", "one")
    for which in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        yield _reads(_TOPICS, "--describe", f"--{which}-partitions", "--topic", "story")
    yield _reads(GROUPS, "--group", "readers", "--describe", view=_sorted)
    yield _reads(GROUPS, "--group", "readers", "--describe", "--state")
    yield Step(
        _CLUSTER, ("list-endpoints", "--bootstrap-server", "{bootstrap}", "--include-fenced-brokers"), reads=True
    )
    yield _refused(_ELECTION, *preferred, "--topic", "one", "--partition", "0")
    yield _does(_ELECTION, *unclean, "--topic", "one", "--partition", "0")
    yield _start(1)
    yield _reads(_TOPICS, "--describe", "--topic", "one")
    yield _does(_ELECTION, *preferred, "--topic", "one", "--partition", "0")
    yield _reads(_TOPICS, "--describe", "--topic", "one")
    yield _does(_ELECTION, *preferred, "--all-topic-partitions", view=_elected)
    yield _reads(_TOPICS, "--describe", "--topic", "story")
    yield _refused(_ELECTION, *preferred, "--topic", "absent", "--partition", "0")


def quorum() -> Iterator[Step]:
    for target in (("--bootstrap-server", "{bootstrap}"), ("--bootstrap-controller", "{controllers}")):
        yield Step(_QUORUM, (*target, "describe", "--status"), reads=True, view=_words)
        yield Step(_QUORUM, (*target, "describe", "--replication"), reads=True, view=_sorted_words)
        yield Step(_CLUSTER, ("cluster-id", *target))
        yield Step(_CLUSTER, ("list-endpoints", *target), reads=True, view=_sorted)
    voter = ("--controller-id", "7", "--controller-directory-id", "AQEBAQEBAQEBAQEBAQEBAQ")
    yield _refused(_QUORUM, "remove-controller", *voter)
    features = f"{TOOLS}FeatureCommand"
    yield _reads(features, "describe", view=_features)
    yield _does(features, "upgrade", "--feature", "metadata.version=30")
    yield _refused(features, "upgrade", "--feature", "no.such.version=1")


def tool_script() -> Iterator[Scene]:
    """All scenes, in their order."""
    for part in (topics, configs, records, groups, reassignments, elections, quorum):
        yield from part()
