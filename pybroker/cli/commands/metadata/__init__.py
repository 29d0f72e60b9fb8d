"""`pybroker metadata`: what the cluster knows of itself, by path. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="metadata", cls=LazyGroup, names=("ls", "cat", "accept"), prefix="metadata.")
def command() -> None:
    """Look up the cluster's metadata by path.

    Much of it has the place that people know from ZooKeeper's shell.

    \b
    /brokers/1                       a broker, its address
    /cluster                         the cluster's id, its controller
    /configs/topics/NAME/SETTING     what was set; also of brokers, groups
    /configs/users/NAME/QUOTA        quotas; also of clients and ips
    /features/metadata.version       levels of features
    /groups/NAME                     a group that is there, with its offsets
    /quorum                          who leads the metadata log
    /topics/NAME/0                   a partition, its leader and replicas

    The source is a broker that runs, ours or Apache Kafka's, or with --snapshot the files of a stopped one.

    Exit status of all: 0, 1 no such path, or the source cannot be read, 2 the command line is wrong, 130 after Ctrl-C.
    """
