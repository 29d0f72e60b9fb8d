"""AddRaftVoter (80): make another controller a voter of the quorum (KIP-853)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.AddRaftVoterRequest, m.AddRaftVoterResponse] = Api(m.AddRaftVoterRequest, 0, 1, perform)
