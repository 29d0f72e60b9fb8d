"""ElectLeaders (43): give partitions their preferred leader, or any at the price of records (KIP-183, KIP-460)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.ElectLeadersRequest, m.ElectLeadersResponse] = Api(m.ElectLeadersRequest, 0, 2, perform)
