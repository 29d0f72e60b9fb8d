"""`Value`: the base of small objects that never change and are equal when their fields are.

    class Endpoint(Value):
        host: str
        port: int = 9092

It gives what `@dataclass(frozen=True, slots=True)` gives, for classes that a broker imports while it starts. That
decorator compiles six functions for each and makes the class twice: a hundred of them took a fifth of the time to the
first answer. Here a class costs next to nothing, and its `__init__` is compiled when the first instance is made.

Annotations are looked at as text, so a module of values begins with `from __future__ import annotations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NoReturn, Self, dataclass_transform


class _ValueType(type):
    """Makes what the body of a class annotates its slots, and keeps the defaults."""

    _fields: tuple[str, ...] = ()
    _defaults: Mapping[str, Any] = MappingProxyType({})

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _ValueType:
        own = tuple(namespace.get("__annotations__", ()))
        defaults = {each: namespace.pop(each) for each in own if each in namespace}
        namespace["__slots__"] = own
        if own:
            above = next(base for base in bases if isinstance(base, _ValueType))
            fields = namespace["_fields"] = namespace["__match_args__"] = (*above._fields, *own)
            namespace["_defaults"] = {**above._defaults, **defaults}
            namespace["_content"] = attrgetter(*fields)
            namespace["__init__"] = _first_init
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(metaclass=_ValueType):
    """Subclasses annotate their fields. A default is shared by all instances; `field(default_factory=...)` makes one
    for each, and is the only thing that `field` may say here."""

    #: Takes the values of all fields out of an instance; of one that has none, something that all of them share.
    _content = attrgetter("__class__")

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields. TypeError for a field that there is not."""
        kind = type(self)
        return kind(**{**{name: getattr(self, name) for name in kind._fields}, **changes})

    def as_dict(self) -> dict[str, Any]:
        """Fields by name; values inside, in lists, tuples and mappings too, are made dictionaries as well."""
        return {name: _plain(getattr(self, name)) for name in type(self)._fields}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        content = self._content
        return bool(content(self) == content(other))

    def __hash__(self) -> int:
        return hash(self._content(self))

    def __repr__(self) -> str:
        kind = type(self)
        return f"{kind.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in kind._fields)})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__qualname__}.{name} cannot be set: a value never changes")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__qualname__}.{name} cannot be deleted: a value never changes")

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        return kind, tuple(getattr(self, name) for name in kind._fields)


def _first_init(self: Value, *arguments: Any, **named: Any) -> None:
    """The `__init__` of every class until it is called."""
    kind: Any = next(each for each in type(self).__mro__ if "_fields" in vars(each))
    kind.__init__ = _compiled_init(kind)
    kind.__init__(self, *arguments, **named)


def _compiled_init(kind: Any) -> Callable[..., None]:
    namespace: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for name in kind._fields:
        default, given = kind._defaults.get(name, MISSING), name
        namespace[f"set_{name}"] = getattr(kind, name).__set__
        if isinstance(default, Field):
            namespace[f"make_{name}"], default = default.default_factory, MISSING
            parameters.append(f"{name}=MISSING")
            given = f"make_{name}() if {name} is MISSING else {name}"
        elif default is MISSING:
            parameters.append(name)
        else:
            namespace[f"default_{name}"] = default
            parameters.append(f"{name}=default_{name}")
        lines.append(f"    set_{name}(self, {given})\n")
    source = f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}"
    exec(compile(source, f"<__init__ of {kind.__qualname__}>", "exec"), namespace)
    made: Callable[..., None] = namespace["__init__"]
    return made


def _plain(content: Any) -> Any:
    if isinstance(content, Value):
        return content.as_dict()
    if isinstance(content, list | tuple):
        return type(content)(map(_plain, content))
    if isinstance(content, Mapping):
        return {_plain(key): _plain(each) for key, each in content.items()}
    return content
