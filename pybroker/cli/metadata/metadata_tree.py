"""The metadata of a cluster as a tree of paths: what `pybroker metadata` walks, from a broker or from files.

A node is made when it is asked for, so that a listing of topics does not ask for their settings. Both sources use the
same names, and `topic_node` and `config_nodes` give the same contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pybroker.metadata.client_quotas import CLIENT_ID, IP, USER
from pybroker.metadata.image import QuotaEntity

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


def client_nodes(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], credentials: Mapping[str, Mapping[str, int]]
) -> dict[str, Node]:
    """Users, client ids and addresses: their quotas, and iterations of users' credentials by mechanism. A user's quotas
    with a client id are below the user, as in ZooKeeper."""
    clients: dict[str, Node] = {}
    addresses: dict[str, Node] = {}
    settings: dict[str | None, dict[str, Any]] = {
        user: {mechanism: f"iterations={count}" for mechanism, count in sorted(each.items())}
        for user, each in credentials.items()
    }
    below: dict[str | None, dict[str, Node]] = {}
    for entity, values in quotas.items():
        names = dict(entity)
        if IP in names:
            addresses[_escaped(names[IP])] = _values(values)
        elif USER not in names:
            clients[_escaped(names.get(CLIENT_ID))] = _values(values)
        elif CLIENT_ID in names:
            below.setdefault(names[USER], {})[_escaped(names[CLIENT_ID])] = _values(values)
        else:
            settings.setdefault(names[USER], {}).update(sorted(values.items()))
    users = {}
    for user in {**settings, **below}:
        own = settings.get(user, {})
        children = {name: leaf(value) for name, value in own.items()}
        if user in below:
            children["clients"] = directory(_sorted(below[user]))
        users[_escaped(user)] = directory(children, own)
    return {
        "clients": directory(_sorted(clients)),
        "ips": directory(_sorted(addresses)),
        "users": directory(_sorted(users)),
    }


def _values(values: Mapping[str, float]) -> Node:
    return directory({name: leaf(value) for name, value in sorted(values.items())}, dict(sorted(values.items())))


def _escaped(name: str | None) -> str:
    """Client ids and users may hold slashes: those and the like are written as in an URL."""
    return DEFAULT_NAME if name is None else quote(name, safe=" @:=+,")


def _sorted(nodes: Mapping[str, Node]) -> dict[str, Node]:
    return dict(sorted(nodes.items()))


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
    """The names of a path."""
    return [part for part in path.split("/") if part]


def walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """All below it, in order, each with its path."""
    for name, child in (node.children() if node.children is not None else {}).items():
        below = f"{path.rstrip('/')}/{name}"
        yield below, child
        yield from walk(child, below)
