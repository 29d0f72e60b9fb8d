"""Every handler goes through what a request may have a million of in slices of the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.protocol import definitions
from pybroker.protocol.definitions import MessageDef
from pybroker.server import apis
from pybroker.server.registry import load_apis

MODULES = sorted(Path(apis.__path__[0]).rglob("[a-z]*.py"))

#: Loops over arrays in one go, and why they may.
SHORT = {
    ("offset_commit", "topic.partitions"): "of a hundred at most",
    ("offset_commit", "request.topics"): "of a hundred at most",
    ("find_coordinator", "response.topics"): "of one topic",
    ("leave_group", "response.members"): "of one member",
    ("list_partition_reassignments", "topic.partitions.items()"): "of the image",
    ("describe_user_scram_credentials", "request.users"): "a generator, which is gone through in slices",
}


def arrays_of(message: MessageDef) -> set[str]:
    structs = [message.body, *message.structs.values()]
    return {field.attribute for struct in structs for field in struct.fields if field.is_array}


def array_names() -> set[str]:
    """Attributes of every request served in Python that are arrays."""
    names: set[str] = set()
    for api in load_apis().values():
        names |= arrays_of(definitions.message(api.request.__name__))
    return names


def loops(tree: ast.AST) -> Iterator[ast.expr]:
    """What is gone through in one go."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from (each.iter for each in node.generators if not each.is_async)


def test_the_arrays_are_found() -> None:
    assert {"topics", "partitions", "partition_indexes", "coordinator_keys", "resources", "groups"} <= array_names()
    assert len(MODULES) > 35


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_handler_goes_through_an_array_of_the_request_in_one_go(module: Path) -> None:
    names = array_names()
    found = {
        ast.unparse(each)
        for each in loops(ast.parse(module.read_text()))
        for part in ast.walk(each)
        if isinstance(part, ast.Attribute)
        and part.attr in names
        and ast.unparse(part) not in ("broker.groups", "topics.by_name")
    }
    allowed = {expression for stem, expression in SHORT if stem == module.stem}
    unexpected = {each for each in found if each not in allowed and not _is_metadata(each)}
    assert unexpected == set(), "use `pybroker.turns.in_slices`"


def _is_metadata(expression: str) -> bool:
    """Of the image, and not of the request."""
    return "image." in expression or ".replicas" in expression
