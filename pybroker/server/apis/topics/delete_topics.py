"""DeleteTopics (20): by name, since version 6 also by id (KIP-516). Answered when they are served no more."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.DeleteTopicsRequest, m.DeleteTopicsResponse] = Api(m.DeleteTopicsRequest, 1, 6, perform)
