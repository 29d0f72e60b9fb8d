"""AddRaftVoter and RemoveRaftVoter (KIP-853) of a quorum that is this controller alone. Pure, and without records.

The faults of a request are told as Apache Kafka tells them. A faultless request cannot be served, because this
controller replicates its log to nobody.
"""

from __future__ import annotations

from pybroker.controller.state import ControllerState, Refusal
from pybroker.metadata.image import Voter
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import ZERO_UUID

_ALONE = "the controller in this broker is a quorum of one, and gives its log to no other voter"


def add_raft_voter(state: ControllerState, request: m.AddRaftVoterRequest) -> m.AddRaftVoterResponse:
    """Why that voter is not added."""
    try:
        own = _voter(state, request.cluster_id, request.voter_id, request.voter_directory_id)
        listeners = [each.name for each in request.listeners]
        if own.endpoints[0][0] not in listeners:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"voters are reached by the listener {own.endpoints[0][0]}, and the new one has {listeners}",
            )
        if request.voter_id == own.id:
            raise Refusal(ErrorCode.DUPLICATE_VOTER, f"{own.id} is the voter there is")
        raise Refusal(ErrorCode.INVALID_REQUEST, _ALONE)
    except Refusal as refusal:
        return m.AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)


def remove_raft_voter(state: ControllerState, request: m.RemoveRaftVoterRequest) -> m.RemoveRaftVoterResponse:
    """Why that voter is not removed."""
    try:
        own = _voter(state, request.cluster_id, request.voter_id, request.voter_directory_id)
        raise Refusal(
            ErrorCode.VOTER_NOT_FOUND,
            "a quorum cannot be without any voter" if request.voter_id == own.id else f"the one voter is {own.id}",
        )
    except Refusal as refusal:
        return m.RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)


def _voter(state: ControllerState, cluster_id: str | None, voter_id: int, directory_id: bytes) -> Voter:
    """The one voter there is; Refusal when the request makes no sense, or voters cannot change."""
    if cluster_id is not None and cluster_id != state.image.cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {state.image.cluster_id}, and not {cluster_id}"
        )
    if not state.image.quorum.voters:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"kraft.version is {state.image.quorum.kraft_version}: voters are in settings, and do not change",
        )
    if voter_id < 0 or directory_id == ZERO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a voter has an id from 0 on and the id of its log dir")
    return state.image.quorum.voters[0]
