"""The leavings of `pybroker perf` on a broker: its topic, as Apache Kafka's perf tools do. How large it is by now, and
the command that removes it, are told at the end, whatever the end is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybroker.cli.perf.perf_options import Address
    from pybroker.client.cluster import Cluster

_TIMEOUT_S = 10.0
#: All that Apache Kafka 2.0 and newer have.
_VERSIONS = (1, 5)


@contextmanager
def told_what_stays(bootstrap: Address, topic: str) -> Iterator[None]:
    """Tell on standard error what a load that produces to the topic leaves there."""
    was_there = _exists(bootstrap, topic)
    try:
        yield
    finally:
        click.echo(_what_stays(bootstrap, topic, was_there=was_there), err=True)


def _exists(bootstrap: Address, topic: str) -> bool:
    from pybroker.client.cluster import Cluster
    from pybroker.client.errors import ClientError

    try:
        with Cluster([bootstrap.pair], timeout_seconds=_TIMEOUT_S) as cluster:
            return bool(_partitions(cluster, topic))
    except ClientError:
        return False  # the load says what is wrong


def _what_stays(bootstrap: Address, topic: str, *, was_there: bool) -> str:
    from pybroker.client.cluster import Cluster
    from pybroker.client.errors import ClientError
    from pybroker.profiles.sizes import format_bytes

    remedy = f"`pybroker topics delete --bootstrap-server {bootstrap.text} --topic {topic}` deletes it"
    whose = "was there before" if was_there else "was made by this run"
    try:
        with Cluster([bootstrap.pair], timeout_seconds=_TIMEOUT_S) as cluster:
            partitions = _partitions(cluster, topic)
            if not partitions:
                return f"no topic {topic} is left on {bootstrap.text}"
            size = format_bytes(_size_bytes(cluster, topic, partitions))
    except ClientError as error:
        return f"the topic {topic} may hold what was produced, and its size is not known ({error}); {remedy}"
    return f"the topic {topic} on {bootstrap.text}, which {whose}, stays and holds {size}; {remedy}"


def _partitions(cluster: Cluster, topic: str) -> list[int]:
    (row,) = cluster.metadata([topic]).topics
    return [each.partition_index for each in row.partitions]


def _size_bytes(cluster: Cluster, topic: str, partitions: list[int]) -> int:
    """The bytes of all replicas, on all brokers."""
    from pybroker.protocol import messages as m

    wanted = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=partitions)
    request = m.DescribeLogDirsRequest(topics=[wanted])
    answers = [cluster.call(request, node=node, versions=_VERSIONS) for node in cluster.nodes()]
    return sum(
        partition.partition_size
        for answer in answers
        for log_dir in answer.results
        for found in log_dir.topics
        for partition in found.partitions
    )
