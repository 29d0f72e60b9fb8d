"""UnregisterController (94): forget a controller that will not come back."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api
from pybroker.server.performing import perform

API: Api[m.UnregisterControllerRequest, m.UnregisterControllerResponse] = Api(
    m.UnregisterControllerRequest, 0, 0, perform
)
