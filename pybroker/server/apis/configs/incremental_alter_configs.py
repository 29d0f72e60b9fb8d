"""IncrementalAlterConfigs (44): change single settings of topics and brokers (KIP-339). Answered when they are in
effect here.
"""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.IncrementalAlterConfigsRequest, m.IncrementalAlterConfigsResponse] = Api(
    m.IncrementalAlterConfigsRequest, 0, 1, perform
)
