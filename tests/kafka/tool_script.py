"""A story that Apache Kafka's command line tools tell, and what of their output is compared between two brokers.

Ids, ports, paths, times and what comes of times (rates, offsets of the metadata log) are replaced. What a tool says of
a refusal has the broker's own words in it: then its exit status and the class of the error are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from admin_script import OWN_SETTINGS

from pybroker.metadata.features import MAX_METADATA_RELEASE

TOOLS = "org.apache.kafka.tools."
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
GROUPS = f"{TOOLS}consumer.group.ConsumerGroupCommand"
_CONSUMER = f"{TOOLS}consumer.ConsoleConsumer"
_REASSIGN = f"{TOOLS}reassign.ReassignPartitionsCommand"


@dataclass(frozen=True)
class Side:
    """One of the two brokers. `scratch` is a dir for files that tools read."""

    bootstrap: str
    log_dir: Path
    scratch: Path

    def filled(self, argument: str) -> str:
        """An argument with this broker's values in it."""
        named = argument.replace("{bootstrap}", self.bootstrap).replace("{dir}", str(self.log_dir))
        return named.replace("{scratch}", str(self.scratch))


@dataclass(frozen=True)
class Step:
    """One run of a tool.

    `reads`: it changes nothing, so it may be repeated until an asynchronous broker has caught up. `has_own_process`: it
    says its last when its JVM ends. `view` is applied to the lines that are left when `comparable_output` is done.
    """

    tool: str
    arguments: tuple[str, ...]
    reads: bool = False
    is_refused: bool = False
    has_own_process: bool = False
    view: Callable[[list[str]], list[str]] = field(default=lambda lines: lines)

    @property
    def name(self) -> str:
        return " ".join((self.tool.rpartition(".")[2], *self.arguments))


def _of_broker(tool: str, *arguments: str) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments))


def _reads(tool: str, *arguments: str, view: Callable[[list[str]], list[str]] = lambda lines: lines) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments), reads=True, view=view)


def _refused(tool: str, *arguments: str) -> Step:
    return Step(tool, ("--bootstrap-server", "{bootstrap}", *arguments), is_refused=True)


# --- what is compared -------------------------------------------------------------------------------------------------

_ID = re.compile(
    r"(TopicId: |Cluster(?:Id: +| ID: )|(?:cluster|directory)\.id=|directoryId\": \"|^\d+[ \t]+)[\w-]{22}(?=[\s,\"]|$)",
    re.MULTILINE,
)
_TIME = re.compile(r"\b1[6-9]\d{11}\b")


def comparable_output(step: Step, side: Side, status: int, output: str) -> tuple[int, list[str]]:
    """Exit status and lines of an output, the same for both brokers if they say the same."""
    if step.is_refused:
        return status, sorted(set(re.findall(r"\w+Exception", output)))
    for value, name in ((side.bootstrap, "BOOTSTRAP"), (str(side.log_dir), "DIR"), (str(side.scratch), "SCRATCH")):
        output = output.replace(value, name)
    output = re.sub(rf"\b{side.bootstrap.rpartition(':')[2]}\b", "PORT", output)
    output = _TIME.sub("TIME", _ID.sub(r"\1ID", output))
    return status, step.view([line.rstrip() for line in output.splitlines()])


def _sorted(lines: list[str]) -> list[str]:
    return sorted(lines)


def _settings(lines: list[str]) -> list[str]:
    """Settings of the broker that both have, and neither was started with."""
    names = [(line.strip().partition("=")[0], line) for line in lines]
    return sorted(line for name, line in names if name not in OWN_SETTINGS and not name.startswith("pybroker."))


def _client_lines(lines: list[str]) -> list[str]:
    """Entities and their values, both of which come in the order of a hash table."""
    ordered = []
    for line in lines:
        entity, are, values = line.partition(" are ")
        ordered.append(entity + are + ", ".join(sorted(values.split(", "))))
    return sorted(ordered)


def _rates(lines: list[str]) -> list[str]:
    """The last line, because a slow run writes others before. Numbers after the first are rates and times."""
    first, comma, rest = lines[-1].partition(",")
    return [first + comma + re.sub(r"\d+(\.\d+)?", "N", rest)]


def _consumed(lines: list[str]) -> list[str]:
    """The title, and the columns that are not times: MB and records consumed."""
    return [lines[0], *(", ".join(line.split(", ")[2:5:2]) for line in lines[1:])]


def _words(lines: list[str]) -> list[str]:
    """Without numbers: offsets of a metadata log, epochs and times are each broker's own."""
    return [re.sub(r"\s+", " ", re.sub(r"-?\b\d+\b", "N", line)) for line in lines]


def _first_sentences(lines: list[str]) -> list[str]:
    """What could not be done, without the broker's words why."""
    return [line.partition(". ")[0] for line in lines]


def _without_level(lines: list[str]) -> list[str]:
    """Without the level that this broker adds behind Apache Kafka's words."""
    return [re.sub(r" It has level \d+$", "", line) for line in lines]


def _records(lines: list[str]) -> list[str]:
    """Batches and records in a log. Checksums come of times."""
    return [re.sub(r"crc: \d+", "crc: N", line) for line in lines]


def _events(lines: list[str]) -> list[str]:
    """Events of a verifiable client: which ones, and how many records were sent or consumed."""
    events = [line for line in lines if line.startswith("{")]
    names = {name for line in events for name in re.findall(r'"name":"(\w+)"', line)}
    counts = [int(count) for line in events for count in re.findall(r'"records_consumed".*?"count":(\d+)', line)]
    return [*sorted(names), f"consumed {sum(counts)}"]


# --- the story --------------------------------------------------------------------------------------------------------


def write_inputs(side: Side) -> None:
    """The files that tools read."""
    scratch = side.scratch
    scratch.mkdir()
    node = ("process.roles=broker,controller", "node.id=1", "controller.listener.names=CONTROLLER")
    listeners = ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.bootstrap.servers=localhost:9093")
    text = "\n".join((*node, *listeners, f"log.dirs={side.log_dir}\n"))
    scratch.joinpath("server.properties").write_text(text)
    scratch.joinpath("lines").write_text("".join(f"key-{index}:value-{index}\n" for index in range(8)))
    rows = [{"topic": "load", "partition": 0, "offset": 3}]
    scratch.joinpath("delete.json").write_text(json.dumps({"partitions": rows, "version": 1}))
    moved = [{"topic": "story", "partition": 0, "replicas": [1]}]
    scratch.joinpath("as-it-is.json").write_text(json.dumps({"version": 1, "partitions": moved}))
    strange = [{"topic": "story", "partition": 0, "replicas": [7]}]
    scratch.joinpath("strange.json").write_text(json.dumps({"version": 1, "partitions": strange}))
    scratch.joinpath("topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "story"}]}))


def topics() -> Iterator[Step]:
    command, story = f"{TOOLS}TopicCommand", ("--topic", "story")
    yield _of_broker(command, "--create", *story, "--partitions", "2", "--config", "retention.ms=-1")
    yield _of_broker(command, "--create", "--topic", "one")
    yield _refused(command, "--create", *story)
    yield _refused(command, "--create", "--topic", "bad name")
    yield _of_broker(command, "--create", *story, "--if-not-exists")
    yield _of_broker(command, "--alter", *story, "--partitions", "3")
    yield _refused(command, "--alter", *story, "--partitions", "1")
    yield _reads(command, "--describe", *story)
    yield _reads(command, "--list")
    yield _reads(command, "--describe", "--topics-with-overrides")
    for which in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        yield _reads(command, "--describe", f"--{which}-partitions", *story)
    yield _refused(command, "--describe", "--topic", "absent")
    yield _of_broker(command, "--create", "--topic", "short-lived")
    yield _of_broker(command, "--delete", "--topic", "short-lived")
    yield _refused(command, "--delete", "--topic", "absent")
    yield _reads(command, "--list")


def configs() -> Iterator[Step]:
    topic, node = ("--entity-type", "topics", "--entity-name", "story"), ("--entity-type", "brokers")
    yield _of_broker(
        CONFIGS, *topic, "--alter", "--add-config", "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    )
    yield _reads(CONFIGS, *topic, "--describe")
    yield _of_broker(CONFIGS, *topic, "--alter", "--delete-config", "cleanup.policy")
    yield _reads(CONFIGS, *topic, "--describe", "--all", view=_settings)
    yield _refused(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=soon")
    yield _refused(CONFIGS, *topic, "--alter", "--add-config", "no.such.key=1")
    yield _of_broker(CONFIGS, *node, "--entity-name", "1", "--alter", "--add-config", "log.cleaner.threads=2")
    yield _reads(CONFIGS, *node, "--entity-name", "1", "--describe", view=_sorted)
    yield _refused(CONFIGS, *node, "--entity-name", "1", "--alter", "--add-config", "node.id=3")
    yield _of_broker(CONFIGS, *node, "--entity-default", "--alter", "--add-config", "message.max.bytes=900000")
    yield _reads(CONFIGS, *node, "--entity-default", "--describe", view=_settings)
    yield _of_broker(CONFIGS, *node, "--entity-default", "--alter", "--delete-config", "message.max.bytes")
    yield _reads(CONFIGS, *node, "--entity-name", "1", "--describe", "--all", view=_settings)
    for kind in ("users", "clients", "ips", "client-metrics", "groups"):
        yield _reads(CONFIGS, "--entity-type", kind, "--describe")
    yield _reads(f"{TOOLS}ClientMetricsCommand", "--list")
    yield _reads(f"{TOOLS}ClientMetricsCommand", "--describe")


def clients() -> Iterator[Step]:
    """Quotas of users, client ids and addresses, and credentials of users."""

    def of(*words: str) -> tuple[str, ...]:
        """Entities in the tool's words: users ann clients app; a name - is the default."""
        pairs = zip(words[::2], words[1::2], strict=True)
        return tuple(
            each
            for kind, name in pairs
            for each in ("--entity-type", kind, *(("--entity-default",) if name == "-" else ("--entity-name", name)))
        )

    def add(entity: tuple[str, ...], values: str) -> Step:
        return _of_broker(CONFIGS, *entity, "--alter", "--add-config", values)

    def delete(entity: tuple[str, ...], names: str) -> Step:
        return _of_broker(CONFIGS, *entity, "--alter", "--delete-config", names)

    rates = "producer_byte_rate=1000000,consumer_byte_rate=2000000"
    ann, app, home = of("users", "ann"), of("clients", "app"), of("ips", "127.0.0.1")
    everyone, anns_app = of("users", "-"), of("users", "ann", "clients", "app")
    yield add(ann, f"{rates},request_percentage=150.5")
    yield add(app, "controller_mutation_rate=2.5")
    for entity in (everyone, of("clients", "-"), anns_app, of("users", "ann", "clients", "-")):
        yield add(entity, rates)
    yield add(of("users", "-", "clients", "-"), rates)
    yield add(home, "connection_creation_rate=7")
    yield add(of("ips", "-"), "connection_creation_rate=70")
    for sha in ("SCRAM-SHA-256=[iterations=8192,password=secret]", "SCRAM-SHA-512=[password=secret]"):
        yield add(ann, sha)
    yield add(of("users", "bob"), "SCRAM-SHA-256=[password=other]")
    for kinds in (("users",), ("clients",), ("ips",), ("users", "clients")):
        words = [word for kind in kinds for word in ("--entity-type", kind)]
        yield _reads(CONFIGS, *words, "--describe", view=_client_lines)
    for entity in (ann, app, anns_app, everyone, of("clients", "-"), home, of("ips", "-"), of("users", "nobody")):
        yield _reads(CONFIGS, *entity, "--describe", view=_client_lines)
    yield _reads(CONFIGS, "--user", "ann", "--client", "app", "--describe", view=_client_lines)
    yield _refused(CONFIGS, *ann, "--alter", "--add-config", "producer_byte_rate=0")
    yield _refused(CONFIGS, *ann, "--alter", "--add-config", "producer_byte_rate=1.5")
    yield _refused(CONFIGS, *ann, "--alter", "--add-config", "no_such_rate=1")
    yield _refused(CONFIGS, *home, "--alter", "--add-config", "connection_creation_rate=0")
    yield _refused(CONFIGS, *ann, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=9,password=secret]")
    yield _refused(CONFIGS, *ann, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=16385,password=secret]")
    yield _refused(CONFIGS, *of("users", "nobody"), "--alter", "--delete-config", "SCRAM-SHA-256")
    yield _refused(CONFIGS, *ann, "--alter", "--delete-config", "never_set")
    yield delete(ann, "producer_byte_rate,SCRAM-SHA-256")
    yield delete(ann, "consumer_byte_rate,request_percentage")
    yield delete(ann, "SCRAM-SHA-256")
    yield _reads(CONFIGS, *ann, "--describe", view=_client_lines)
    yield delete(ann, "SCRAM-SHA-512")
    yield delete(of("users", "bob"), "SCRAM-SHA-256")
    yield delete(home, "connection_creation_rate")
    yield delete(of("ips", "-"), "connection_creation_rate")
    yield delete(app, "controller_mutation_rate")
    both = "producer_byte_rate,consumer_byte_rate"
    for entity in (everyone, of("clients", "-"), anns_app, of("users", "ann", "clients", "-")):
        yield delete(entity, both)
    yield delete(of("users", "-", "clients", "-"), both)
    for kind in ("users", "clients", "ips"):
        yield _reads(CONFIGS, "--entity-type", kind, "--describe", view=_client_lines)


def records() -> Iterator[Step]:
    parsed = [word for each in ("parse.key=true", "key.separator=:") for word in ("--reader-property", each)]
    keyed = ("--topic", "one", "--sync", "--timeout", "0", *parsed)
    yield _of_broker(f"{TOOLS}ConsoleProducer", *keyed, "<{scratch}/lines")
    shown = [f"print.{each}=true" for each in ("key", "partition", "offset", "headers", "timestamp")]
    properties = [word for each in shown for word in ("--formatter-property", each)]
    yield _of_broker(
        _CONSUMER, "--topic", "one", "--partition", "0", "--offset", "2", "--max-messages", "4", *properties
    )
    yield _of_broker(_CONSUMER, "--topic", "one", "--from-beginning", "--max-messages", "8", "--group", "console")
    verified = ("--bootstrap-server", "{bootstrap}", "--topic", "verified", "--max-messages", "20")
    for topic in ("verified", "load", "latency"):
        yield _of_broker(f"{TOOLS}TopicCommand", "--create", "--topic", topic)
    yield Step(f"{TOOLS}VerifiableProducer", verified, has_own_process=True, view=_events)
    consumer = (*verified, "--group-id", "verified", "--reset-policy", "earliest")
    yield Step(f"{TOOLS}VerifiableConsumer", consumer, has_own_process=True, view=_events)
    load = ("--topic", "load", "--num-records", "2000")
    producer = ("--bootstrap-server", "{bootstrap}", *load, "--record-size", "100", "--throughput", "-1")
    yield Step(f"{TOOLS}ProducerPerformance", producer, view=_rates)
    reading = ("--bootstrap-server", "{bootstrap}", *load, "--group", "perf", "--timeout", "60000")
    yield Step(f"{TOOLS}ConsumerPerformance", reading, view=_consumed)
    round_trips = ("--topic", "latency", "--num-records", "5", "--producer-acks", "all", "--record-size", "10")
    latency = ("--bootstrap-server", "{bootstrap}", *round_trips)
    yield Step(f"{TOOLS}EndToEndLatency", latency, view=_words)
    offsets = f"{TOOLS}GetOffsetShell"
    for time in ("latest", "earliest", "-1", "0"):
        yield _reads(offsets, "--topic", "one", "--time", time)
    yield _reads(offsets, "--topic", "story", "--time", "max-timestamp")
    yield _reads(offsets, "--topic-partitions", "load:0,one")
    yield _of_broker(f"{TOOLS}DeleteRecordsCommand", "--offset-json-file", "{scratch}/delete.json")
    yield _reads(offsets, "--topic", "load", "--partitions", "0", "--time", "earliest")
    yield _reads(f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", "one")
    log = "{dir}/one-0/" + f"{0:020}.log"
    yield Step(f"{TOOLS}DumpLogSegments", ("--files", log, "--print-data-log"), view=_records)


def groups() -> Iterator[Step]:
    group = ("--group", "readers")
    yield _reads(GROUPS, *group, "--topic", "story", "--reset-offsets", "--to-earliest", "--dry-run")
    yield _of_broker(
        GROUPS, *group, "--topic", "story", "--topic", "one", "--reset-offsets", "--to-offset", "5", "--execute"
    )
    yield _reads(GROUPS, "--list", view=_sorted)
    yield _reads(GROUPS, "--list", "--state", view=_sorted)
    yield _reads(GROUPS, "--list", "--type", view=_sorted)
    yield _reads(f"{TOOLS}GroupsCommand", "--list", view=_sorted)
    for what in ("--offsets", "--members", "--state"):
        yield _reads(GROUPS, *group, "--describe", what)
    yield _reads(GROUPS, "--all-groups", "--describe", view=_sorted)
    yield _of_broker(GROUPS, *group, "--delete-offsets", "--topic", "one")
    yield _of_broker(GROUPS, *group, "--delete")
    yield _refused(GROUPS, *group, "--describe")
    yield _refused(GROUPS, *group, "--delete")


def cluster() -> Iterator[Step]:
    quorum, of_broker = f"{TOOLS}MetadataQuorumCommand", ("--bootstrap-server", "{bootstrap}")
    for what in ("--status", "--replication"):
        yield Step(quorum, (*of_broker, "describe", what), reads=True, view=_words)
    yield Step(f"{TOOLS}ClusterTool", ("cluster-id", *of_broker))
    yield Step(f"{TOOLS}ClusterTool", ("list-endpoints", *of_broker))
    election = (f"{TOOLS}LeaderElectionCommand", "--election-type")
    yield _of_broker(*election, "preferred", "--all-topic-partitions")
    yield _of_broker(*election, "preferred", "--topic", "story", "--partition", "0")
    yield _of_broker(*election, "unclean", "--topic", "story", "--partition", "0")
    yield _refused(*election, "unclean", "--topic", "absent", "--partition", "0")
    yield _reads(_REASSIGN, "--list")
    moving = ("--topics-to-move-json-file", "{scratch}/topics.json", "--broker-list", "1")
    yield _reads(_REASSIGN, "--generate", *moving)
    yield _of_broker(_REASSIGN, "--execute", "--reassignment-json-file", "{scratch}/as-it-is.json")
    yield _reads(_REASSIGN, "--verify", "--reassignment-json-file", "{scratch}/as-it-is.json")
    yield _refused(_REASSIGN, "--execute", "--reassignment-json-file", "{scratch}/strange.json")
    yield _refused(_REASSIGN, "--cancel", "--reassignment-json-file", "{scratch}/as-it-is.json")
    producers = ("describe-producers", "--topic", "one", "--partition", "0")
    yield Step(f"{TOOLS}TransactionsCommand", (*of_broker, *producers), view=_words)
    for what in ("version-mapping", "feature-dependencies"):
        words = ("--feature", "metadata.version=30") if what == "feature-dependencies" else ()
        yield Step(f"{TOOLS}FeatureCommand", (*of_broker, what, *words))
    features = f"{TOOLS}FeatureCommand"
    yield Step(features, (*of_broker, "upgrade", "--feature", "metadata.version=30"), view=_without_level)
    yield _of_broker(features, "upgrade", "--feature", "metadata.version=33")
    yield _of_broker(features, "upgrade", "--metadata", MAX_METADATA_RELEASE)
    lower = ("downgrade", "--feature", "metadata.version=29")
    for words in (lower, (*lower, "--unsafe", "--dry-run"), ("disable", "--feature", "no.such.version")):
        yield Step(features, (*of_broker, *words), view=_first_sentences)
    for broker_id in ("7", "-1"):
        unregistering = ("unregister", *of_broker, "--id", broker_id)
        yield Step(f"{TOOLS}ClusterTool", unregistering, is_refused=True, has_own_process=True)
    voter = ("--controller-id", "7", "--controller-directory-id", "AQEBAQEBAQEBAQEBAQEBAQ")
    yield _refused(quorum, "remove-controller", *voter)
    yield Step("kafka.tools.StorageTool", ("info", "--config", "{scratch}/server.properties"), view=_sorted)


def tool_script() -> Iterator[Step]:
    """All steps, in their order."""
    for part in (topics, configs, clients, records, groups, cluster):
        yield from part()
