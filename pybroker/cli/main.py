"""`pybroker`: the command line. Commands are imported when they are called, so that each starts fast."""

from __future__ import annotations

from pybroker.observability import standard_streams

# Before any import that might keep a file open.
standard_streams.occupy()

import click  # noqa: E402

from pybroker import __version__  # noqa: E402
from pybroker.cli.ending import ended_by_signals  # noqa: E402
from pybroker.cli.lazy_group import LazyGroup  # noqa: E402

_NAMES = (
    "serve",
    "service",
    "info",
    "cluster",
    "topics",
    "configs",
    "groups",
    "produce",
    "consume",
    "metadata",
    "events",
    "config",
    "log",
    "profile",
    "doctor",
    "perf",
    "bench",
    "completion",
)


@click.group(cls=LazyGroup, names=_NAMES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pybroker")
@click.pass_context
def main(context: click.Context) -> None:
    """A broker that speaks Apache Kafka's protocol and keeps Apache Kafka's files."""
    if context.invoked_subcommand != "serve":  # the broker has signals of its own
        context.with_resource(ended_by_signals())
