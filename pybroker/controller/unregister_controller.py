"""UnregisterController: forget a controller that a larger quorum has left in the metadata. Pure.

A registered controller counts for the feature levels that the cluster serves, as long as its registration stays.
"""

from __future__ import annotations

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata import features
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_ITSELF = "Controller cannot unregister itself while it is active."
_TOO_OLD = "The current MetadataVersion is too old to support controller unregistration."


def unregister_controller(
    state: ControllerState, request: m.UnregisterControllerRequest
) -> ControllerResult[m.UnregisterControllerResponse]:
    """End the registration of a controller. This one and each other voter stays (KAFKA-20865): the features of a voter
    count for as long as it votes."""
    number = request.controller_id
    if number == state.node_id:
        return _refused(ErrorCode.INVALID_REQUEST, f"{_ITSELF} Controller {number} is this broker: to end it, stop it")
    if state.image.metadata_version < features.UNREGISTER_CONTROLLER_LEVEL:
        return _refused(ErrorCode.UNSUPPORTED_VERSION, _TOO_OLD)
    if number not in state.image.cluster.controllers:
        return _refused(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {number} is not currently registered.")
    if number in {voter.id for voter in state.image.quorum.voters}:
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"Controller {number} is a voter of the quorum. `kafka-metadata-quorum.sh remove-controller` ends that",
        )
    record = m.UnregisterControllerRecord(controller_id=number)
    return ControllerResult(m.UnregisterControllerResponse(error_message=""), [state.versioned(record)])


def _refused(code: ErrorCode, message: str) -> ControllerResult[m.UnregisterControllerResponse]:
    return ControllerResult(m.UnregisterControllerResponse(error_code=code, error_message=message))
