"""CreatePartitions (37): more partitions for a topic (KIP-195). Answered when they are served here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.CreatePartitionsRequest, m.CreatePartitionsResponse] = Api(m.CreatePartitionsRequest, 0, 3, perform)
