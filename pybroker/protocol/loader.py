"""Makes message classes, each at its first use, and answers look-ups by api key."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pybroker.protocol import definitions
from pybroker.protocol.class_source import init_source
from pybroker.protocol.definitions import MessageDef, StructDef
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.runtime import CodecCache, Message, Struct
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.values import Value

MESSAGES_MODULE = "pybroker.protocol.messages"
API_VERSIONS_KEY = 18


class ApiInfo(Value):
    """One API as Kafka defines it. `name` has no Request suffix; `flexible_min_version` is None when no version is
    flexible.
    """

    api_key: int
    name: str
    min_version: int
    max_version: int
    flexible_min_version: int | None
    latest_version_unstable: bool
    listeners: tuple[str, ...]

    def is_flexible(self, version: int) -> bool:
        return self.flexible_min_version is not None and version >= self.flexible_min_version


def _codec_cache(name: str, cls: type[Message], kind: str, *, in_slices: bool = False) -> CodecCache:
    def generate(version: int) -> Callable[..., Any]:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ProtocolError(f"{name} v{version} is unknown: versions are {cls.MIN_VERSION} to {cls.MAX_VERSION}")
        message = definitions.message(name)
        if kind == "encoder":
            from pybroker.protocol.encoder_source import generate_encoder

            return generate_encoder(message, version, cls, in_slices=in_slices)
        from pybroker.protocol.decoder_source import generate_decoder

        return generate_decoder(message, version, cls, in_slices=in_slices)

    return CodecCache(generate)


def _struct_class(base: type[Any], struct: StructDef, message: MessageDef, name: str, content: dict[str, Any]) -> Any:
    return type(
        struct.name,
        (base,),
        {
            "__module__": MESSAGES_MODULE,
            "__qualname__": name,
            "__slots__": tuple(field.attribute for field in struct.fields),
            "__init__": _init_at_first_use(struct, message),
            **content,
        },
    )


def _init_at_first_use(struct: StructDef, message: MessageDef) -> Callable[..., None]:
    """An `__init__` that is compiled, and takes its own place, when it is first called: most classes are only decoded,
    or not used at all."""

    def __init__(self: Any, **fields: Any) -> None:
        namespace = {message.name: message_class(message.name), "UNSET": object(), "ZERO_UUID": ZERO_UUID}
        exec(compile(init_source(struct, message.name), f"<__init__ of {struct.name}>", "exec"), namespace)
        kind: Any = type(self)
        kind.__init__ = namespace["__init__"]
        kind.__init__(self, **fields)

    return __init__


@functools.cache
def message_class(name: str) -> type[Message]:
    """The class of a message; KeyError when there is none of that name, or Kafka has removed every version of it."""
    message = definitions.message(name)
    if not message.versions:
        raise KeyError(name)
    content: dict[str, Any] = {
        "API_KEY": message.api_key,
        "MIN_VERSION": message.versions.lowest,
        "MAX_VERSION": message.versions.highest,
        "FLEXIBLE_MIN_VERSION": message.flexible.lowest if message.flexible else None,
        "LATEST_VERSION_UNSTABLE": message.latest_unstable,
    }
    for struct in message.structs.values():
        content[struct.name] = _struct_class(Struct, struct, message, f"{name}.{struct.name}", {})
    cls: type[Message] = _struct_class(Message, message.body, message, name, content)
    cls._encoders = _codec_cache(name, cls, "encoder")
    cls._decoders = _codec_cache(name, cls, "decoder")
    cls._encoders_in_slices = _codec_cache(name, cls, "encoder", in_slices=True)
    cls._decoders_in_slices = _codec_cache(name, cls, "decoder", in_slices=True)
    return cls


@functools.cache
def apis() -> dict[int, ApiInfo]:
    """Every API that Kafka still has, by api key, in their order."""
    found = {}
    for head in definitions.heads():
        if head.kind == "request" and head.versions and head.api_key is not None:
            found[head.api_key] = ApiInfo(
                api_key=head.api_key,
                name=head.name.removesuffix("Request"),
                min_version=head.versions.lowest,
                max_version=head.versions.highest,
                flexible_min_version=head.flexible.lowest if head.flexible else None,
                latest_version_unstable=head.latest_unstable,
                listeners=head.listeners,
            )
    return found


def _api(api_key: int) -> ApiInfo:
    api = apis().get(api_key)
    if api is None:
        raise ProtocolError(f"api key {api_key} is unknown")
    return api


def request_class(api_key: int) -> type[Message]:
    """The request's class; ProtocolError for an unknown api key."""
    return message_class(_api(api_key).name + "Request")


def response_class(api_key: int) -> type[Message]:
    """The response's class; ProtocolError for an unknown api key."""
    return message_class(_api(api_key).name + "Response")


def request_header_version(api_key: int, version: int) -> int:
    """The RequestHeader version in front of a request (KIP-482)."""
    return 2 if _api(api_key).is_flexible(version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """The ResponseHeader version in front of a response.

    That of ApiVersions is always 0: a client that does not know the broker yet must be able to read it (KIP-511).
    """
    return 1 if api_key != API_VERSIONS_KEY and _api(api_key).is_flexible(version) else 0


@functools.cache
def _record_names(namespace: str, kind: str) -> dict[int, str]:
    return {
        head.api_key: head.name
        for head in definitions.heads()
        if head.namespace == namespace and head.kind == kind and head.api_key is not None
    }


def record_class(namespace: str, kind: str, api_key: int) -> type[Message] | None:
    """The class of a namespace's records with that api key (record type); None when there is none. `kind`: metadata,
    coordinator-key or coordinator-value.
    """
    name = _record_names(namespace, kind).get(api_key)
    return None if name is None else message_class(name)


def record_classes(namespace: str, kind: str) -> dict[int, type[Message]]:
    """All classes of a namespace's records by their api key."""
    return {api_key: message_class(name) for api_key, name in _record_names(namespace, kind).items()}
