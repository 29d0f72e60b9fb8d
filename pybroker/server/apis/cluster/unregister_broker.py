"""UnregisterBroker (64): forget a broker that will not come back (KIP-631)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.UnregisterBrokerRequest, m.UnregisterBrokerResponse] = Api(m.UnregisterBrokerRequest, 0, 0, perform)
