"""RemoveRaftVoter (81): take a controller out of the voters of the quorum (KIP-853)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.RemoveRaftVoterRequest, m.RemoveRaftVoterResponse] = Api(m.RemoveRaftVoterRequest, 0, 0, perform)
