"""The kinds of files in a log dir, each with one file of that kind."""

from __future__ import annotations

import re
from pathlib import Path

from pybroker.testing.damage.template import TOPIC, Template

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


def _kind(template: Template, path: Path) -> str:
    if path.is_relative_to(template.rings):
        return "ring" if path.suffix == ".ring" else "ring: other"
    name = path.name
    if (segment := _SEGMENT.search(name)) is not None:
        name = f"{_segment_place(path)}{segment[2]}"
    elif (checkpoint := _CHECKPOINT.search(name)) is not None:
        name = checkpoint[1]
    parent = path.relative_to(template.log_dir).parts[:-1]
    if not parent:
        return name
    folder = {_METADATA: "metadata", "__consumer_offsets-0": "offsets", f"{TOPIC}-0": "topic"}.get(parent[0], "")
    return f"{folder}: {name}" if folder else ""


def kinds(template: Template) -> dict[str, Path]:
    """One file of each kind, relative paths' absolute form, by the kind's name. Folders of partitions are kinds too."""
    found: dict[str, Path] = {}
    for root in (template.log_dir, template.rings):
        for path in sorted(root.rglob("*")):
            if path.is_file() and (kind := _kind(template, path)):
                found.setdefault(kind, path)
    for name, folder in (("topic", f"{TOPIC}-0"), ("offsets", "__consumer_offsets-0"), ("metadata", _METADATA)):
        found[f"{name}: directory"] = template.log_dir / folder
    return found
