"""Paths on the command line of `pybroker log`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybroker.storage.offline.layout import Target


def open_paths(paths: Iterable[str]) -> list[Target]:
    """The kind of each path; a usage error (exit status 2) for one that is nothing a broker keeps."""
    from pybroker.storage.errors import StorageError
    from pybroker.storage.offline.layout import open_target

    targets = []
    for path in paths:
        try:
            targets.append(open_target(Path(path)))
        except StorageError as error:
            raise click.UsageError(str(error)) from None
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from None
    return targets


def printable(text: str) -> str:
    """A text that a terminal takes: names of files may be no text at all."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
