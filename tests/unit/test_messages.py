"""No message advises to empty or delete what may hold records.

Every text of the package that a person may read is looked through: messages, findings, help and the docstrings that
commands show. One that tells somebody to take files, directories or topics away is rewritten (`pybroker log stray`, a
backup, moving aside), or stands below with the reason why nothing can be lost by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pybroker"
#: Verbs as advice has them, and adjectives that are verbs with an object.
ADVICE = re.compile(
    r"(?<![\w.{=/-])(?:"
    r"delete|remove|rm|rmdir|wipe|mkfs|erase|purge|unlink|truncate|discard|reformat|scratch|start (?:anew|afresh)"
    r"|(?:empty|format|clear|drop) (?:it|them|the|this|that|those|all|a|an)"
    r")(?![\w=.-])",
    re.IGNORECASE,
)
#: A text is advice from this many words on; less is a name or a key.
_WORDS = 4
#: Part of a text to the reason why no record can be lost by doing it.
ALLOWED = {
    "and remove the cluster with its data": "what the option --delete does, if given",
    "cleanup.policy=[compact,delete]": "a value of a setting",
    "move or delete their offsets": "what the subcommands do",
    "Delete groups that have no members": "what the command does",
    "take back or delete what a broker has set aside": "what the subcommands do",
    "Remove the directories PATHS": "what the command does",
    "Remove it for good?": "the question before it",
    "sudo rm {}": "takes settings of the kernel back",
    "reassign and delete topics": "what the subcommands do",
    "Delete topics with all their records": "what the command does",
    "remove this one with kafka-metadata-quorum.sh": "a voter, whose files stay",
    "Use DELETE to remove the setting": "a setting of a topic",
    "1 DELETE": "an operation on a setting",
    "delete drops them": "explains a value of a setting",
    "How many threads delete expired remote segments": "explains a setting",
    "remove the line": "a line of server.properties",
    "so remove it": "a listener in server.properties",
    "remove the setting if that is meant": "a line of server.properties",
    "it might delete metadata information": "says why that is refused",
    "syncs do not empty the disk's cache": "says what a mount option does",
    "kafka-storage.sh format": "writes meta.properties into dirs that have none, and removes nothing",
    "has no delete": "a value of a setting",
    "remove {}: it is not needed any more": "a file of systemd's that the command wrote",
    "remove {}": "a file of systemd's that the command wrote",
    "Remove tail rings of log dirs that were deleted": "what the option does, which keeps all rings of other log dirs",
    "did not remove the {}: {}": "what the option --fix could not do, or was not asked to do",
    "Remove it from listeners": "a listener in server.properties",
    "topics delete --bootstrap-server {} --topic {}` deletes it": "the topic of a load, which the load made",
    "topics delete --bootstrap-server {}:{} --topic {}` deletes it": "the topic of a load, which the load made",
    "groups delete --bootstrap-server {} --group {}` deletes it": "the group of a load, which the load made",
}


def _text(node: ast.AST) -> str | None:
    """The text of a literal with `{}` for what is filled in; None for another expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "{}" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else (left or "{}") + (right or "{}")
    return None


def _texts(node: ast.AST, shows_docstrings: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        text = _text(child)
        if text is None:
            yield from _texts(child, shows_docstrings)
        elif not isinstance(node, ast.Expr) or shows_docstrings:
            yield " ".join(text.split())


def _advice(text: str) -> bool:
    return text.count(" ") >= _WORDS - 1 and ADVICE.search(text) is not None


def _all_advice() -> Iterator[tuple[str, str]]:
    """(file below the package, text) of each text that may be advice to take something away."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("testing/", "protocol/")):
            continue  # for developers, or written by a generator
        module = ast.parse(path.read_text())
        if ast.get_docstring(module) is not None:
            del module.body[0]
        for text in _texts(module, name.startswith("cli/commands/")):
            if _advice(text):
                yield name, text


def test_no_message_advises_to_take_away_what_may_hold_records() -> None:
    found = list(_all_advice())
    unexplained = [(name, text) for name, text in found if not any(part in text for part in ALLOWED)]
    assert unexplained == []
    stale = [part for part in ALLOWED if not any(part in text for _, text in found)]
    assert stale == [], "explained, and not there any more"


@pytest.mark.parametrize(
    "text",
    [
        "{}: directory.id is missing: restore the file or empty the log dir",
        "{} is there already: name another directory, or remove it",
        "no log here takes them; else `rm {}`",
        "make the file system anew with more inodes (mkfs -N)",
        "stop the broker and format it with kafka-storage.sh",
        "shorten retention, delete topics, or enlarge the disk",
    ],
)
def test_advice_that_there_once_was_is_seen(text: str) -> None:
    assert _advice(text)


@pytest.mark.parametrize(
    "text",
    ["a name cannot be empty; --entity-default means the rest", "set cleanup.policy=delete for all of these topics"],
)
def test_other_texts_are_no_advice(text: str) -> None:
    assert not _advice(text)
