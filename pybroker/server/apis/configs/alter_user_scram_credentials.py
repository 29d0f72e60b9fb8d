"""AlterUserScramCredentials (51): set and delete what users' passwords are checked against (KIP-554)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.AlterUserScramCredentialsRequest, m.AlterUserScramCredentialsResponse] = Api(
    m.AlterUserScramCredentialsRequest, 0, 0, perform
)
