"""The metadata of a cluster as a tree of paths: what `pybroker metadata` walks, from a broker or from files.

A node is made when it is asked for, so that a listing of topics does not ask for their settings. Both sources use the
same names, and `topic_node` and `config_nodes` give the same contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Children = Mapping[str, "Node"]

#: The name of the broker resource that holds for all brokers.
DEFAULT_NAME = "<default>"


@dataclass(frozen=True, slots=True)
class Node:
    """`content` makes what `cat` shows, `children` what `ls` lists; a node has one of them or both."""

    content: Callable[[], Any] | None = None
    children: Callable[[], Children] | None = None


def leaf(value: Any) -> Node:
    """A node with just this."""
    return Node(lambda: value)


def directory(children: Children, content: Any = None) -> Node:
    """A node with these below it, and maybe something of its own."""
    return Node((lambda: content) if content is not None else None, lambda: children)


def config_nodes(settings: Mapping[str, str | None]) -> Node:
    """The settings of one resource: each, and all together."""
    return directory({name: leaf(value) for name, value in sorted(settings.items())}, dict(sorted(settings.items())))


class NoSuchPath(Exception):
    """The text says how far the path could be followed."""


def find(root: Node, path: str) -> Node:
    """The node at a path such as /topics/orders/0. NoSuchPath without one."""
    node, so_far = root, ""
    for name in parts(path):
        children = node.children() if node.children is not None else {}
        if name not in children:
            raise NoSuchPath(f"there is no {name!r} in {so_far or '/'}")
        node, so_far = children[name], f"{so_far}/{name}"
    return node


def parts(path: str) -> list[str]:
    """The names of a path. A client id may hold slashes, but nothing listed here does."""
    return [part for part in path.split("/") if part]


def walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """All below it, in order, each with its path."""
    for name, child in (node.children() if node.children is not None else {}).items():
        below = f"{path.rstrip('/')}/{name}"
        yield below, child
        yield from walk(child, below)
