"""The kinds of brokers that `bench.peers.table` compares: a file each with a function that starts one, and a line here.

A function takes the `Site` and gives a `Peer`. It sets what that broker's own documentation advises, beside the
settings that all share (`COMMON_OVERRIDES`, in Kafka's words).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from bench.peers.adapters import kafka, pybroker
from bench.peers.peer import Peer, Site

#: By the name that tables and the command line have. More overrides may be given as `overrides`.
ADAPTERS: Mapping[str, Callable[..., Peer]] = {
    "pybroker-direct": partial(pybroker.start, engine="direct", name="pybroker-direct"),
    "pybroker-paced": partial(pybroker.start, engine="paced", name="pybroker-paced"),
    "kafka": kafka.start,
}

__all__ = ["ADAPTERS", "Peer", "Site"]
