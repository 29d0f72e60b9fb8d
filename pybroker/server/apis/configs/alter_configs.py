"""AlterConfigs (33): replace all settings of topics and brokers (KIP-133). Answered when they are in effect here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.AlterConfigsRequest, m.AlterConfigsResponse] = Api(m.AlterConfigsRequest, 0, 2, perform)
