"""`pybroker consume`: records to standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from pybroker.cli.broker_options import bootstrap_option, connected, json_option, pairs
from pybroker.cli.common import EXIT_INTERRUPTED, fail
from pybroker.cli.name_options import complete_groups, complete_topics, names_option
from pybroker.cli.output import plural
from pybroker.cli.records.consume_start import partitions_to_read, positions, start_of
from pybroker.cli.records.librdkafka import client_properties_option, library, settings
from pybroker.cli.records.record_lines import (
    NO_TIME,
    PlainWriter,
    Record,
    kafka_time_text,
    ms_text,
    unescape,
    utc_text,
    write_json,
)
from pybroker.cli.times import Time

_POLL_SECONDS = 0.2
_MOST_AT_ONCE = 500
_TIME_TEXTS = {"iso": utc_text, "ms": ms_text, "kafka": kafka_time_text}
_PRINTS = {"print.partition": "partitions", "print.offset": "offsets", "print.headers": "headers", "print.key": "keys"}
_FORMATTER_PROPERTIES = (
    *("print.timestamp", "print.value", *_PRINTS),
    *("key.separator", "line.separator", "headers.separator", "null.literal"),
)
_SHOW_OPTIONS = [
    click.option("--keys", is_flag=True, help="Keys, too."),
    click.option("--headers", is_flag=True, help="Headers, too."),
    click.option("--partitions", is_flag=True, help="Partitions, too."),
    click.option("--offsets", is_flag=True, help="Offsets, too."),
    click.option(
        "--timestamps",
        is_flag=False,
        flag_value="iso",
        type=click.Choice(list(_TIME_TEXTS)),
        help="Timestamps, too, as ISO 8601 in UTC, ms since 1970, or as Kafka's tool prints them.",
    ),
    click.option("--separator", metavar="TEXT", help=r"Between them; \t, the tab, if not said."),
    click.option(
        "--formatter-property",
        "--property",
        "formatter_properties",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Kafka's names of the above: {', '.join(_FORMATTER_PROPERTIES)}.",
    ),
]


def _show_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SHOW_OPTIONS):
        command = option(command)
    return command


@click.command(name="consume")
@bootstrap_option
@names_option("--topic", "topics", complete_topics, help="What to read; may be repeated.", metavar="TOPIC")
@click.option("--include", metavar="REGEX", help="Topics whose whole name this matches, instead.")
@click.option("--partition", "indexes", multiple=True, type=click.IntRange(0), help="Only this one; may be repeated.")
@click.option("--from-beginning", is_flag=True, help="From the first record that is left, not from now on.")
@click.option("--offset", metavar="OFFSET", help="From here: a number, -N for the last N, earliest, latest.")
@click.option("--from-time", type=Time(), metavar="TIME", help="From the first record of that time or later.")
@click.option(
    "--group",
    metavar="NAME",
    help="As a member of this group, from its offsets, which it commits.",
    shell_complete=complete_groups,
)
@click.option("--until-end", is_flag=True, help="Only to where the partitions end now; without, wait for more.")
@click.option("--max-messages", type=click.IntRange(1), help="End after so many records.")
@click.option("--timeout-ms", type=click.IntRange(1), help="End when nothing has come for so long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to leave out transactions that are open or aborted.",
)
@json_option
@_show_options
@client_properties_option("--consumer-property")
def command(
    bootstrap: str,
    as_json: bool,
    isolation_level: str,
    max_messages: int | None,
    timeout_ms: int | None,
    properties: tuple[str, ...],
    **options: Any,
) -> None:
    """Print records, one a line.

    Those that come from now on, until Ctrl-C, unless it is told where to begin and to end.

    \b
    pybroker consume --topic orders --from-beginning --keys --timestamps
    pybroker consume --topic orders --offset -10 --until-end --json
    pybroker consume --topic orders --from-time 2026-01-31T14:00
    pybroker consume --topic orders --group readers

    Needs confluent-kafka. Where it begins: --offset, --from-beginning or --from-time; with --group, at the group's
    offsets, else at the end, or with --from-beginning at the first record.

    Exit status: 0, 1 the broker refused or cannot be reached, 2 the command line is wrong, 130 after Ctrl-C.
    """
    _check(options)
    write = write_json if as_json else _plain_writer(options).write
    kafka = library()
    config = settings(
        bootstrap,
        properties,
        isolation_level=isolation_level,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
    )
    reader = _Reader(kafka, write, max_messages, timeout_ms)
    if options["group"] is not None:
        reader.subscribe(bootstrap, config, options)
    else:
        reader.assign(bootstrap, config, options)
    reader.run()


def _check(options: Mapping[str, Any]) -> None:
    """A usage error for options that cannot be meant together."""
    if bool(options["topics"]) == (options["include"] is not None):
        raise click.UsageError("say what to read: either --topic or --include")
    start_of(options["offset"], options["from_beginning"], options["from_time"])
    alone = ("indexes", "offset", "from_time", "until_end")
    if options["group"] is not None and any(options[name] not in (None, (), False) for name in alone):
        raise click.UsageError("a --group says where to read: without --partition, --offset, --from-time, --until-end")


def _plain_writer(options: Mapping[str, Any]) -> PlainWriter:
    """From the options and Kafka's properties, which say the same; a usage error for an unknown one."""
    given = pairs("--formatter-property", options["formatter_properties"])
    unknown = given.keys() - set(_FORMATTER_PROPERTIES)
    if unknown:
        raise click.UsageError(f"--formatter-property {min(unknown)}: known are {', '.join(_FORMATTER_PROPERTIES)}")
    shown = {name: options[name] or given.get(kafkas_name) == "true" for kafkas_name, name in _PRINTS.items()}
    timestamps = options["timestamps"] or ("kafka" if given.get("print.timestamp") == "true" else None)
    separator = options["separator"] if options["separator"] is not None else given.get("key.separator", "\t")
    return PlainWriter(
        time_text=_TIME_TEXTS[timestamps] if timestamps else None,
        shows_partition=shown["partitions"],
        shows_offset=shown["offsets"],
        shows_headers=shown["headers"],
        shows_key=shown["keys"],
        shows_value=given.get("print.value") != "false",
        separator=unescape(separator),
        headers_separator=unescape(given.get("headers.separator", ",")),
        line_separator=unescape(given.get("line.separator", "\n")),
        null_text=given.get("null.literal", "null").encode(),
    )


class _Reader:
    """Reads until there is a reason to end. `_open` has the ends of partitions not yet come to, if that is one."""

    def __init__(
        self, kafka: Any, write: Callable[[Record], bytes], max_messages: int | None, timeout_ms: int | None
    ) -> None:
        self._kafka = kafka
        self._write = write
        self._max_messages = max_messages
        self._timeout_seconds = timeout_ms / 1000 if timeout_ms is not None else None
        self._open: dict[tuple[str, int], int] | None = None
        self._commits = False
        self._count = 0
        self._consumer: Any = None

    def assign(self, bootstrap: str, config: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Read partitions by themselves; nothing is committed."""
        from pybroker.client import offsets

        start = start_of(options["offset"], options["from_beginning"], options["from_time"])
        with connected(bootstrap) as cluster:
            wanted = partitions_to_read(cluster, options["topics"], options["include"], options["indexes"])
            ends = offsets.ends(cluster, wanted)
            begin = positions(cluster, start, wanted, ends)
        if options["until_end"]:
            self._open = {each: ends[each][1] for each in wanted if begin[each] < ends[each][1]}
        # The library wants a group's name, and nobody hears of it.
        alone = {"group.id": "pybroker-consume", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = self._make({**alone, **config})
        self._consumer.assign([self._kafka.TopicPartition(*each, begin[each]) for each in wanted])

    def subscribe(self, bootstrap: str, config: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Read as a member of a group."""
        with connected(bootstrap) as cluster:
            partitions_to_read(cluster, options["topics"], options["include"], ())
        reset = "earliest" if options["from_beginning"] else "latest"
        self._commits = True
        self._consumer = self._make({"group.id": options["group"], "auto.offset.reset": reset, **config})
        # A leading ^ is the library's mark of a regular expression.
        self._consumer.subscribe([f"^(?:{options['include']})$"] if options["include"] else list(options["topics"]))

    def _make(self, config: dict[str, Any]) -> Any:
        try:
            return self._kafka.Consumer(config)
        except self._kafka.KafkaException as error:
            fail(error.args[0].str())

    def run(self) -> None:
        """Ends the command after Ctrl-C and when the library gives up."""
        status = 0
        try:
            self._read()
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
        finally:
            # A group hears of it, and with what is committed then goes on at the right place.
            self._consumer.close()
        click.echo(plural(self._count, "record"), err=True)
        sys.exit(status)

    def _read(self) -> None:
        output = sys.stdout.buffer
        last_seconds = time.monotonic()
        while self._open != {} and self._count != self._max_messages:
            most = min(_MOST_AT_ONCE, (self._max_messages or sys.maxsize) - self._count)
            messages = self._consumer.consume(most, _POLL_SECONDS)
            for message in messages:
                self._take(message, output)
            if messages:
                output.flush()
                last_seconds = time.monotonic()
            elif self._timeout_seconds is not None and time.monotonic() - last_seconds > self._timeout_seconds:
                return

    def _take(self, message: Any, output: Any) -> None:
        error = message.error()
        partition = message.topic(), message.partition()
        if error is not None:
            if error.code() == self._kafka.KafkaError._PARTITION_EOF:
                # A log may end with what is no record: marks of transactions, or what a cleaner has left out.
                self._at(partition, message.offset())
            elif error.fatal() or not error.retriable():
                fail(f"{message.topic() or 'consume'}: {error.str()}")
            return
        if self._open is not None and partition not in self._open:
            return
        self._count += 1
        output.write(self._write(_record(message)))
        self._at(partition, message.offset() + 1)
        if self._commits:
            self._consumer.store_offsets(message)

    def _at(self, partition: tuple[str, int], offset: int) -> None:
        if self._open is not None and offset >= self._open.get(partition, sys.maxsize):
            del self._open[partition]


def _record(message: Any) -> Record:
    kind, time_ms = message.timestamp()
    return Record(
        message.value(),
        message.key(),
        message.headers() or [],
        NO_TIME if kind == 0 else time_ms,
        kind == 2,
        message.topic(),
        message.partition(),
        message.offset(),
    )
