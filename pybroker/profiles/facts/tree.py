"""`Tree`: files of /proc and /sys below a root, which is `/`, or a captured copy of a machine's.

Nothing here fails: what is missing, unreadable, or not as expected is None, or empty. A file is read once, so that one
`Tree` is one moment of the machine. Blocking, but only for microseconds.
"""

from __future__ import annotations

import os
from pathlib import Path


class Tree:
    """Reads by absolute path, as the machine has it. Links in /sys are relative, so they stay inside of a copy."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._texts: dict[str, str | None] = {}

    @property
    def is_live(self) -> bool:
        """Whether this is the running machine itself."""
        return self._root == "/"

    def text(self, path: str) -> str | None:
        """The file's text, blanks around it dropped."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def number(self, path: str) -> int | None:
        """The file's one whole number."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """The directory's names, in order."""
        try:
            return sorted(os.listdir(self._below(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory, links followed."""
        return os.path.exists(self._below(path))

    def resolve(self, path: str) -> str:
        """The path without links, as the machine has it."""
        resolved = os.path.realpath(self._below(path))
        if self.is_live:
            return resolved
        inside = resolved == self._root or resolved.startswith(self._root + "/")
        return (resolved[len(self._root) :] or "/") if inside else path

    def _read(self, path: str) -> str | None:
        try:
            # Names from devices and mounts may be any bytes; device trees end their texts with a 0.
            return Path(self._below(path)).read_bytes().decode(errors="replace").strip(" \t\r\n\0")
        except OSError:
            return None

    def _below(self, path: str) -> str:
        return path if self.is_live else self._root + os.path.normpath("/" + path)


def numbers_of(ranges: str | None) -> set[int]:
    """The numbers of a list such as `0-3,8`, as the kernel writes CPUs and nodes. Empty for what is none."""
    found: set[int] = set()
    for part in (ranges or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found.update(range(int(first), int(last or first) + 1))
    return found


def chosen_of(words: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The word in brackets and all words of a list such as `none [mq-deadline]`. A single word is chosen."""
    parts = (words or "").split()
    names = tuple(part.strip("[]") for part in parts)
    bracketed = [part.strip("[]") for part in parts if part.startswith("[")]
    return (bracketed[0] if bracketed else names[0] if len(names) == 1 else None), names
