"""The versions that ApiVersions tells clients, beside those that are served."""

from __future__ import annotations

import pytest

from pybroker.protocol import messages as m
from pybroker.server.registry import PRODUCE_KEY, load_apis, served_ranges, told_ranges

UPDATE_FEATURES = m.UpdateFeaturesRequest.API_KEY


@pytest.mark.parametrize(("joins_quorum", "last"), [(False, 1), (True, 2)])
def test_a_broker_with_its_own_controller_tells_of_responses_with_a_row_for_each_feature(
    joins_quorum: bool, last: int
) -> None:
    served = served_ranges(load_apis(joins_quorum=joins_quorum))
    told = {key: (low, high) for key, low, high in told_ranges(served, joins_quorum=joins_quorum)}
    assert told[UPDATE_FEATURES] == (0, last)
    m.UpdateFeaturesResponse(results=[m.UpdateFeaturesResponse.UpdatableFeatureResult(feature="f")]).encode(last)
    # Any version is served, for clients that do not ask.
    assert {key: (low, high) for key, low, high in served}[UPDATE_FEATURES] == (0, m.UpdateFeaturesRequest.MAX_VERSION)


@pytest.mark.parametrize("joins_quorum", [False, True])
def test_all_other_versions_are_told_as_they_are_served(joins_quorum: bool) -> None:
    served = served_ranges(load_apis(joins_quorum=joins_quorum))
    told = told_ranges(served, joins_quorum=joins_quorum)
    differ = {each[0] for each, other in zip(served, told, strict=True) if each != other}
    assert differ == {PRODUCE_KEY} | (set() if joins_quorum else {UPDATE_FEATURES})
