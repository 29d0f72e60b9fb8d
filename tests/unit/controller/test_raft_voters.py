"""AddRaftVoter and RemoveRaftVoter: what cannot be compared with Apache Kafka, which would do it
(`tests/kafka/cluster_script.py` has the rest)."""

from collections.abc import Callable

import pytest

from pybroker.controller.raft_voters import add_raft_voter, remove_raft_voter
from pybroker.controller.state import ControllerState
from pybroker.metadata.image import QuorumImage, Voter
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
OWN, OTHER = bytes([1]) * 16, bytes([2]) * 16
LISTENER = m.AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=9)
ADD = m.AddRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=OTHER, listeners=[LISTENER])


@pytest.fixture
def alone(make_state: State) -> ControllerState:
    """A quorum of one."""
    state = make_state()
    voter = Voter(1, OWN, (("CONTROLLER", "127.0.0.1", 9093),), (0, 1))
    return state.replace(image=state.image.replace(quorum=QuorumImage(kraft_version=1, voters=(voter,))))


def test_nobody_joins_and_the_last_one_stays(alone: ControllerState) -> None:
    joined = add_raft_voter(alone, ADD)
    assert joined.error_code == ErrorCode.INVALID_REQUEST
    assert "a quorum of one" in joined.error_message
    leaving = m.RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=OWN)
    assert remove_raft_voter(alone, leaving).error_code == ErrorCode.VOTER_NOT_FOUND


def test_voters_of_settings_do_not_change(make_state: State) -> None:
    leaving = m.RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=OWN)
    assert add_raft_voter(make_state(), ADD).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert remove_raft_voter(make_state(), leaving).error_code == ErrorCode.UNSUPPORTED_VERSION
