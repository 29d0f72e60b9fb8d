"""Where `pybroker metadata` reads from: a broker that runs, or files at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pybroker.cli.broker_options import bootstrap_option, connected, json_option
from pybroker.cli.common import fail

if TYPE_CHECKING:
    from pybroker.cli.metadata.metadata_tree import Node

Command = TypeVar("Command", bound=Callable[..., Any])

_snapshot_option = click.option(
    "--snapshot",
    type=click.Path(exists=True, path_type=Path),
    help="Read files instead: a log dir, __cluster_metadata-0 in it, or a .checkpoint.",
)


def source_options(command: Command) -> Command:
    """--bootstrap-server, --snapshot and --json; the command gets `bootstrap`, `snapshot` and `as_json`."""
    return bootstrap_option(_snapshot_option(json_option(command)))


@contextmanager
def opened(bootstrap: str, snapshot: Path | None) -> Iterator[Node]:
    """The root of the tree. A failure, and a path that does not exist, end the command with exit status 1."""
    from pybroker.cli.metadata.metadata_tree import NoSuchPath

    try:
        if snapshot is not None:
            yield _of_files(snapshot)
        else:
            from pybroker.cli.metadata.metadata_live import live_tree

            with connected(bootstrap) as cluster:
                yield live_tree(cluster)
    except NoSuchPath as error:
        fail(str(error))


def _of_files(snapshot: Path) -> Node:
    from pybroker.cli.metadata.metadata_files import cluster_id_beside, image_tree, read_image
    from pybroker.metadata.errors import MetadataError
    from pybroker.storage.errors import StorageError

    try:
        return image_tree(read_image(snapshot), cluster_id_beside(snapshot))
    except (MetadataError, StorageError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or snapshot}: {error.strerror}")
