"""Kafka's text form of which brokers keep which partition."""

from __future__ import annotations

import click


def parse_assignment(text: str | None) -> list[list[int]]:
    """`1:2,2:3` gives partition 0 the brokers 1 and 2, partition 1 the brokers 2 and 3. A usage error otherwise."""
    try:
        return [[int(each) for each in part.split(":")] for part in text.split(",")] if text is not None else []
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text!r}: accepted are ids of brokers, ':' between those of a partition and ',' "
            "between partitions"
        ) from None
