"""The kinds of files in a log dir, each with one file of that kind."""

from __future__ import annotations

import re
from pathlib import Path

_SEGMENT = re.compile(r"(\d{20})(\.\w+)$")
_METADATA = "__cluster_metadata-0"
_CHECKPOINT = re.compile(r"\d{20}-\d{10}(\.checkpoint)$")


def _segment_place(path: Path) -> str:
    """Whether a segment's file belongs to the first, a middle or the active segment; empty where there is only one."""
    bases = sorted(each.stem for each in path.parent.glob("*.log"))
    if len(bases) < 2 or path.suffix == ".snapshot":
        return ""
    if path.stem == bases[-1]:
        return "active "
    return "first " if path.stem == bases[0] else "middle "


def _kind(path: Path, folder: str) -> str:
    """`folder` is what its directory is called; empty: it lies in the log dir itself."""
    name = path.name
    if (segment := _SEGMENT.search(name)) is not None:
        name = f"{_segment_place(path)}{segment[2]}"
    elif (checkpoint := _CHECKPOINT.search(name)) is not None:
        name = checkpoint[1]
    return f"{folder}: {name}" if folder else name


def kinds(log_dir: Path, topic: str, rings: Path | None = None, *, newest: bool = False) -> dict[str, Path]:
    """One file of each kind that is there, by the kind's name: of partition 0 of `topic`, of the metadata, of the
    committed offsets, of the log dir itself and of its rings. The directories of these partitions are kinds too. Of
    several files it is the first by name, or the last if `newest`."""
    found: dict[str, Path] = {}
    directories = {"topic": f"{topic}-0", "offsets": "__consumer_offsets-0", "metadata": _METADATA}
    for folder, name in [*directories.items(), ("", ".")]:
        for path in sorted((log_dir / name).glob("*"), reverse=newest):
            if path.is_file():
                found.setdefault(_kind(path, folder), path)
    for folder, name in directories.items():
        if (log_dir / name).is_dir():
            found[f"{folder}: directory"] = log_dir / name
    for path in [] if rings is None else sorted(rings.rglob("*")):
        if path.is_file():
            found.setdefault("ring" if path.suffix == ".ring" else "ring: other", path)
    return dict(sorted(found.items()))
