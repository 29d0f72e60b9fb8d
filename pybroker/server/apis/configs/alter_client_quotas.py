"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.AlterClientQuotasRequest, m.AlterClientQuotasResponse] = Api(m.AlterClientQuotasRequest, 0, 1, perform)
