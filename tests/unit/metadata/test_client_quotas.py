"""Whose quota holds for a client: Kafka's order (KIP-55)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import pytest

from pybroker.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limit, limit, limits, not_enforced
from pybroker.metadata.image import MetadataImage, quota_entity

ME, APP = "ANONYMOUS", "app"
NONE = Limit(0.0, False)
#: The first one that is set holds, for a client id that is named, and whether it is shared.
ORDER: tuple[tuple[dict[str, str | None], bool], ...] = (
    ({"user": ME, "client-id": APP}, False),
    ({"user": ME, "client-id": None}, False),
    ({"user": ME}, True),
    ({"user": None, "client-id": APP}, False),
    ({"user": None, "client-id": None}, False),
    ({"user": None}, True),
    ({"client-id": APP}, False),
    ({"client-id": None}, False),
)


def _image(entities: Iterable[dict[str, str | None]], key: str = PRODUCER_BYTE_RATE) -> MetadataImage:
    quotas = {quota_entity(names): {key: float(place + 1)} for place, names in enumerate(entities)}
    return MetadataImage(cluster_id="c", client_quotas=quotas)


def test_each_quota_holds_when_those_before_it_are_not_set() -> None:
    for chosen in itertools.product((False, True), repeat=len(ORDER)):
        entities = [each for each, is_set in zip(ORDER, chosen, strict=True) if is_set]
        image = _image(names for names, _ in entities)
        found = limits(image, ME, PRODUCER_BYTE_RATE)
        for name in (APP, "other", ""):
            assert limit(image, ME, name, PRODUCER_BYTE_RATE) == found.named.get(name, found.others)
        assert found.named.get(APP, found.others) == (Limit(1.0, entities[0][1]) if entities else NONE)
        unnamed = [place for place, (names, _) in enumerate(entities) if names.get("client-id") != APP]
        expected = Limit(float(unnamed[0] + 1), entities[unnamed[0]][1]) if unnamed else NONE
        assert found.others == expected
        of_user = [place for place, (names, _) in enumerate(entities) if "client-id" not in names]
        assert found.named[""] == (Limit(float(of_user[0] + 1), True) if of_user else NONE)


def test_quotas_of_others_do_not_hold() -> None:
    image = _image([{"user": "ann"}, {"user": "ann", "client-id": APP}, {"user": "ann", "client-id": None}])
    found = limits(image, ME, PRODUCER_BYTE_RATE)
    assert (found.named.get(APP, found.others), found.others) == (NONE, NONE)
    assert limits(_image([{"user": ME}]), ME, CONSUMER_BYTE_RATE).others == NONE


@pytest.mark.parametrize("value", [math.nan, -1.0, 0.0])
def test_what_is_no_rate_is_no_bound(value: float) -> None:
    quotas = {quota_entity({"user": ME}): {PRODUCER_BYTE_RATE: value}, quota_entity({}): {PRODUCER_BYTE_RATE: 5.0}}
    found = limits(MetadataImage(cluster_id="c", client_quotas=quotas), ME, PRODUCER_BYTE_RATE)
    assert found.others == NONE


def test_which_quotas_nobody_is_held_to() -> None:
    home = quota_entity({"ip": None})
    quotas = {
        home: {"connection_creation_rate": 1.0},
        quota_entity({"user": ME}): {PRODUCER_BYTE_RATE: 1.0, "request_percentage": 2.0},
    }
    image = MetadataImage(cluster_id="c", client_quotas=quotas)
    assert not_enforced(image) == ["connection_creation_rate", "request_percentage"]
