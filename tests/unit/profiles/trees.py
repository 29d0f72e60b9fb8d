"""Captured machines: `trees/<name>.tree` unpacked below a directory, for what reads /proc and /sys.

A tree is text. `path = line` is a file; `path:` one whose lines follow, indented; `path -> target` a link; `path/` a
prefix for the indented lines that follow, of the same forms; `path -` takes away what came before; `@ name` includes a
tree.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_TREES = Path(__file__).parent / "trees"


def unpack(name: str, root: Path) -> Path:
    """Make the machine `name` below `root`, and return that."""
    lines = (_TREES / f"{name}.tree").read_text().splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        block = []
        while at + 1 < len(lines) and lines[at + 1].startswith("    "):
            at += 1
            block.append(lines[at][4:])
        at += 1
        if line.startswith("@ "):
            unpack(line[2:], root)
        elif line.endswith(":") and block:
            _write(root, line[:-1], "\n".join(block))
        elif line.endswith("/") and block:
            for inner in block:
                _entry(root, line + inner)
        elif line and not line.startswith("#"):
            _entry(root, line)
    return root


def _entry(root: Path, line: str) -> None:
    path, sign, value = _split(line)
    if sign == "->":
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        # Links count their way from where they lie, as in /sys.
        link.symlink_to(value)
        return
    if sign == "-":
        shutil.rmtree(root / path.lstrip("/"))
        return
    _write(root, path, value)


def _split(line: str) -> tuple[str, str, str]:
    for sign in (" -> ", " = "):
        path, found, value = line.partition(sign)
        if found:
            return path, sign.strip(), value
    if line.endswith(" ="):
        return line[:-2], "=", ""
    if line.endswith(" -"):
        return line[:-2], "-", ""
    raise ValueError(f"not a line of a tree: {line!r}")


def _write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")
