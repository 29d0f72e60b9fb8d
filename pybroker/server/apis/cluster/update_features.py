"""UpdateFeatures (57): change which levels of features are finalised (KIP-584)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.UpdateFeaturesRequest, m.UpdateFeaturesResponse] = Api(m.UpdateFeaturesRequest, 0, 2, perform)
