"""`pybroker produce`: records from standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import click

from pybroker.cli.broker_options import bootstrap_option, connected, pairs
from pybroker.cli.common import EXIT_FAILED, EXIT_INTERRUPTED, fail
from pybroker.cli.name_options import complete_topics, name_option
from pybroker.cli.output import plural
from pybroker.cli.records.librdkafka import client_properties_option, library, settings
from pybroker.cli.records.record_lines import LineError, PlainReader, Record, read_json, unescape

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_POLL_SECONDS = 0.1
_READER_PROPERTIES = (
    *("parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator"),
    *("headers.key.separator", "null.marker", "ignore.error"),
)


@click.command(name="produce")
@bootstrap_option
@name_option("--topic", "topic", complete_topics, help="Where to; the broker may make it.", metavar="TOPIC")
@click.option("--partition", type=click.IntRange(0), help="Into this one, instead of by key or at random.")
@click.option("--key-separator", metavar="TEXT", help=r"Lines are KEY TEXT VALUE; \t is a tab.")
@click.option("--headers", "has_headers", is_flag=True, help="Lines begin with NAME:VALUE,NAME:VALUE and a tab.")
@click.option("--null-marker", metavar="TEXT", help="A key or value that is this is none: a tombstone.")
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON objects as `pybroker consume --json` writes them."
)
@click.option("--compression-codec", "--codec", "codec", type=click.Choice(_CODECS), default="none", show_default=True)
@click.option(
    "--request-required-acks",
    "--acks",
    "acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    default="all",
    show_default=True,
)
@click.option("--timeout-ms", type=click.IntRange(1), default=30_000, show_default=True, help="For each record.")
@click.option(
    "--reader-property",
    "--property",
    "reader_properties",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Kafka's names of the above: {', '.join(_READER_PROPERTIES)}.",
)
@client_properties_option("--producer-property")
def command(
    bootstrap: str,
    topic: str,
    partition: int | None,
    as_json: bool,
    codec: str,
    acks: str,
    timeout_ms: int,
    properties: tuple[str, ...],
    **lines: Any,
) -> None:
    """Send each line of standard input as a record.

    \b
    seq 1 1000 | pybroker produce --topic numbers
    echo 'k1=v1' | pybroker produce --topic orders --key-separator = --codec zstd
    pybroker consume --topic a --from-beginning --until-end --json \\
        | pybroker produce --topic b --json

    A key goes to the partition that Kafka's own clients choose. Needs confluent-kafka.

    Exit status: 0 the broker has all of them, 1 it has not, or a line is no record, 2 the command line is wrong, 130
    after Ctrl-C.
    """
    plain = _plain_reader(lines)
    read: Callable[[bytes], Record] = read_json if as_json else plain.read
    kafka = library()
    config = settings(
        bootstrap,
        properties,
        acks=acks,
        enable_idempotence=acks in ("all", "-1"),
        compression_codec=codec,
        message_timeout_ms=timeout_ms,
        partitioner="murmur2_random",
    )
    with connected(bootstrap, timeout_ms) as cluster:
        cluster.metadata([topic])
    try:
        producer = kafka.Producer(config)
    except kafka.KafkaException as error:
        fail(error.args[0].str())
    if sys.stdin.isatty():
        click.echo("one record a line; Ctrl-D ends", err=True)
    _Sender(kafka, producer, topic, partition).send_all(sys.stdin.buffer, read)


def _plain_reader(options: Mapping[str, Any]) -> PlainReader:
    """From the options and Kafka's properties, which say the same; a usage error for an unknown one."""
    given = pairs("--reader-property", options["reader_properties"])
    unknown = given.keys() - set(_READER_PROPERTIES)
    if unknown:
        raise click.UsageError(f"--reader-property {min(unknown)}: known are {', '.join(_READER_PROPERTIES)}")
    key_separator = options["key_separator"]
    if key_separator is None and given.get("parse.key") == "true":
        key_separator = given.get("key.separator", "\t")
    null_marker = options["null_marker"] if options["null_marker"] is not None else given.get("null.marker")
    separators = {
        name: unescape(given.get(name.replace("_", "."), default))
        for name, default in (("headers_delimiter", "\t"), ("headers_separator", ","), ("headers_key_separator", ":"))
    }
    if key_separator == "" or not all(separators.values()):
        raise click.UsageError("a separator cannot be empty")
    return PlainReader(
        key_separator=unescape(key_separator) if key_separator is not None else None,
        has_headers=options["has_headers"] or given.get("parse.headers") == "true",
        null_marker=null_marker.encode() if null_marker is not None else None,
        ignores_errors=given.get("ignore.error") == "true",
        **separators,
    )


class _Sender:
    """Sends, and counts what the broker did not take."""

    def __init__(self, kafka: Any, producer: Any, topic: str, partition: int | None) -> None:
        self._kafka = kafka
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._sent_count = 0
        self._failed_count = 0

    def send_all(self, lines: BinaryIO, read: Callable[[bytes], Record]) -> None:
        """Ends the command unless the broker has every record."""
        status = 0
        try:
            status = self._send_lines(lines, read)
            self._flush()
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
            self._flush()
        acknowledged_count = self._sent_count - self._failed_count
        click.echo(f"{plural(acknowledged_count, 'record')} to {self._topic}", err=True)
        if self._failed_count:
            click.echo(f"pybroker: {plural(self._failed_count, 'record')} not acknowledged", err=True)
        if status or self._failed_count:
            sys.exit(status or EXIT_FAILED)

    def _send_lines(self, lines: Iterable[bytes], read: Callable[[bytes], Record]) -> int:
        for number, line in enumerate(lines, 1):
            try:
                record = read(line.removesuffix(b"\n"))
            except LineError as error:
                click.echo(f"pybroker: line {number}: {error}", err=True)
                return EXIT_FAILED
            try:
                self._send(record)
            except self._kafka.KafkaException as error:
                click.echo(f"pybroker: line {number}: {error.args[0].str()}", err=True)
                return EXIT_FAILED
            if self._failed_count:
                break
        return 0

    def _send(self, record: Record) -> None:
        more: dict[str, Any] = {"timestamp": record.time_ms} if record.time_ms > 0 else {}
        if self._partition is not None:
            more["partition"] = self._partition
        if record.headers:
            more["headers"] = record.headers
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, on_delivery=self._on_delivery, **more)
                break
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
        self._sent_count += 1
        self._producer.poll(0)

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is None:
            return
        if self._failed_count == 0:
            click.echo(f"pybroker: {self._topic}: {error.str()}", err=True)
        self._failed_count += 1

    def _flush(self) -> None:
        """Every record ends in its time, with or without an acknowledgement."""
        while self._producer.flush(_POLL_SECONDS):
            pass
