"""CreateTopics (19): new topics, placed by the controller. Answered when their partitions are served here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.CreateTopicsRequest, m.CreateTopicsResponse] = Api(m.CreateTopicsRequest, 2, 7, perform)
