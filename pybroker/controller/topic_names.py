"""Which topic names are legal, and which collide. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pybroker.controller.state import Refusal
from pybroker.protocol.errors import ErrorCode

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refusal with INVALID_TOPIC_EXCEPTION unless `name` may be a topic's."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed: it names a directory"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


class CollisionIndex:
    """Finds names that differ only in '.' against '_', which metrics cannot tell apart. Built when first needed."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._by_normal_form: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Refusal with INVALID_TOPIC_EXCEPTION when `name` collides with another existing name."""
        if "." not in name and "_" not in name:
            return
        if self._by_normal_form is None:
            self._by_normal_form = {each.replace(".", "_"): each for each in self._names if "." in each or "_" in each}
        other = self._by_normal_form.get(name.replace(".", "_"))
        if other is not None and other != name:
            raise Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}. In names of metrics '.' and '_' are the same",
            )

    def add(self, name: str) -> None:
        """Take a new name into account."""
        if self._by_normal_form is not None and ("." in name or "_" in name):
            self._by_normal_form[name.replace(".", "_")] = name
