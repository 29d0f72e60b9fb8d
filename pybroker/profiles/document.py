"""`ProfileDocument`: one profile as a TOML file, read and written. Every class of machines is such a file, and what was
tuned for one machine is too.

    [profile]  name, title
    [match]    facts of the machine that have to hold (`matching.FACTS`); without it, it is only chosen by name
    [set]      what the broker is started with (`keys.PROFILE_KEYS`); what is missing is as in the generic profile
    [why]      for each key that is set, one line

A profile that sets nothing only recognises machines. Failures: ConfigError, which names file and key.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from pybroker.config.definition import ConfigError
from pybroker.profiles.keys import PROFILE_KEYS, Setting
from pybroker.profiles.matching import FACTS, Wanted
from pybroker.values import Value

_TABLES = ("profile", "match", "set", "why")


class ProfileDocument(Value):
    """A profile. `name` is what the broker and its figures call it."""

    name: str
    title: str
    match: Mapping[str, Wanted] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    #: None for one that is not in a file yet.
    path: Path | None = None


def read_document(path: Path) -> ProfileDocument:
    """The profile in a file. ConfigError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the profile {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # TOML, or UTF-8
        raise ConfigError(f"the profile {path} is not TOML: {error}") from None
    for name in content:
        if name not in _TABLES or not isinstance(content[name], dict):
            raise ConfigError(f"{path}: {name} is no table of a profile; accepted: {', '.join(_TABLES)}")
    about = content.get("profile", {})
    return ProfileDocument(
        name=_text(path, about, "name", path.stem),
        title=_text(path, about, "title", ""),
        match={name: _wanted(path, name, value) for name, value in content.get("match", {}).items()},
        settings={name: _setting(path, name, value) for name, value in content.get("set", {}).items()},
        why={name: _text(path, content["why"], name, "") for name in content.get("why", {})},
        path=path,
    )


def format_document(document: ProfileDocument, comment: str = "") -> str:
    """The text of the file, with `comment` at its head."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()] + ([""] if comment else [])
    about = {"name": document.name, "title": document.title}
    tables = {"profile": about, "match": document.match, "set": document.settings, "why": document.why}
    for table, values in tables.items():
        if values:
            lines += [f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in values.items()), ""]
    return "\n".join(lines)


def _toml(value: Wanted) -> str:
    """JSON's texts, numbers, truth values and lists are TOML's too, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(path: Path, table: Mapping[str, Any], name: str, default: str) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {name} cannot be {value!r}; accepted: a text in quotes")
    return value


def _wanted(path: Path, name: str, value: object) -> Wanted:
    if name not in FACTS:
        raise ConfigError(f"{path}: nothing can be matched by {name}; accepted: {', '.join(FACTS)}")
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values or not all(isinstance(each, bool | int | str) for each in values):
        raise ConfigError(f"{path}: {name} cannot match {value!r}; accepted: a text, a number, true, false, or a list")
    return values if isinstance(value, list) else values[0]


def _setting(path: Path, name: str, value: object) -> Setting:
    key = PROFILE_KEYS.get(name)
    if key is None:
        raise ConfigError(f"{path}: {name} is nothing a profile sets; accepted: {', '.join(PROFILE_KEYS)}")
    if not key.accepts(value):
        raise ConfigError(f"{path}: {name} cannot be {value!r}; accepted: {key.accepted}")
    assert isinstance(value, int | str)
    return value
