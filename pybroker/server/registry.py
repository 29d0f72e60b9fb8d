"""Every API that is served, found by looking: a module below `pybroker.server.apis` with an `API` is served.

Produce and Fetch are served by the data plane; what it is told here is their versions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from pybroker.controller.update_features import LAST_VERSION_WITH_ROWS
from pybroker.protocol import messages as m
from pybroker.server import apis
from pybroker.server.api import Api
from pybroker.server.performing import forwarded, perform

PRODUCE_KEY = 0
FETCH_KEY = 1

VersionRange = tuple[int, int, int]

_DATA_PLANE: tuple[VersionRange, ...] = ((PRODUCE_KEY, 3, 13), (FETCH_KEY, 4, 18))
#: Kafka says that it serves Produce from version 0 on, which it does not: librdkafka up to 2.8 looks there to learn
#: which codecs it may use (KAFKA-18659).
_TOLD_PRODUCE_MIN_VERSION = 0


def load_apis(*, joins_quorum: bool = False) -> dict[int, Api[Any, Any]]:
    """The APIs served in Python, by api key, of a broker that joins controllers elsewhere or of one with its own."""
    found: dict[int, Api[Any, Any]] = {}
    for each in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        api = getattr(importlib.import_module(each.name), "API", None)
        if api is not None:
            found[api.request.API_KEY] = api
    return {**found, **forwarded()} if joins_quorum else found


def forwarded_keys(found: Mapping[int, Api[Any, Any]]) -> frozenset[int]:
    """The APIs among them that the controller answers."""
    return frozenset(key for key, api in found.items() if api.handle is perform)


def served_ranges(found: Mapping[int, Api[Any, Any]]) -> tuple[VersionRange, ...]:
    """The versions that the data plane lets through."""
    own = ((key, api.min_version, api.max_version) for key, api in found.items())
    return tuple(sorted((*_DATA_PLANE, *own)))


def told_ranges(served: tuple[VersionRange, ...], *, joins_quorum: bool = False) -> tuple[VersionRange, ...]:
    """The versions that ApiVersions tells clients.

    A broker with its own controller serves UpdateFeatures in each version, and tells of those whose response has a row
    for each feature. So `kafka-features.sh upgrade --release-version` raises the features that are served, and says of
    each other one that it is not. Elsewhere the controllers, which may be Apache Kafka's, take a release as a whole.
    """
    return tuple(_told(each, joins_quorum=joins_quorum) for each in served)


def _told(served: VersionRange, *, joins_quorum: bool) -> VersionRange:
    key, low, high = served
    if key == PRODUCE_KEY:
        return key, _TOLD_PRODUCE_MIN_VERSION, high
    if key == m.UpdateFeaturesRequest.API_KEY and not joins_quorum:
        return key, low, min(high, LAST_VERSION_WITH_ROWS)
    return served
