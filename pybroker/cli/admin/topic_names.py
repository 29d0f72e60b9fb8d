"""Which topics a command means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail

if TYPE_CHECKING:
    from pybroker.client.topics import Topic

exclude_internal_option = click.option(
    "--exclude-internal", is_flag=True, help="Leave out the topics that brokers keep for themselves."
)


def matching(topics: Iterable[Topic], patterns: Iterable[str], exclude_internal: bool) -> list[Topic]:
    """Those whose whole name one of the regular expressions matches; all without any. A usage error for a bad one."""
    try:
        expressions = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise click.UsageError(f"--topic {error.pattern!r} is no regular expression: {error}") from None
    return [
        topic
        for topic in topics
        if not (exclude_internal and topic.is_internal)
        and (not expressions or any(expression.fullmatch(topic.name) for expression in expressions))
    ]


def found_or_fail(topics: list[Topic], patterns: Iterable[str]) -> list[Topic]:
    """`topics`; ends the command when none of what was asked for is there."""
    wanted = ", ".join(patterns)
    if wanted and not topics:
        fail(f"no topic matches {wanted}")
    return topics
