"""UnregisterController: codes, records, and what is left of the controller that goes."""

from collections.abc import Callable

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.controller.unregister_controller import unregister_controller
from pybroker.metadata.features import METADATA_VERSION
from pybroker.metadata.image import Voter
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
GONE = m.UnregisterControllerRequest(controller_id=7)


def _with_controllers(state: ControllerState, after: After, *ids: int) -> ControllerState:
    records = [state.versioned(m.RegisterControllerRecord(controller_id=number)) for number in ids]
    return after(state, ControllerResult(None, records))


def test_a_controller_that_is_gone_is_forgotten_and_the_others_stay(make_state: State, after: After) -> None:
    state = _with_controllers(make_state(), after, 1, 7)
    result = unregister_controller(state, GONE)
    assert (result.response.error_code, result.response.error_message) == (ErrorCode.NONE, "")
    assert result.records == [VersionedRecord(m.UnregisterControllerRecord(controller_id=7), 0)]
    assert sorted(after(state, result).image.cluster.controllers) == [1]


def test_a_controller_is_not_unregistered_twice_and_an_unknown_one_never(make_state: State, after: After) -> None:
    state = _with_controllers(make_state(), after, 1, 7)
    state = after(state, unregister_controller(state, GONE))
    for number in (7, 9, -1):
        result = unregister_controller(state, m.UnregisterControllerRequest(controller_id=number))
        assert (result.response.error_code, result.records) == (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, [])


def test_the_controller_in_this_process_stays(make_state: State, after: After) -> None:
    state = _with_controllers(make_state(), after, 1, 7)
    result = unregister_controller(state, m.UnregisterControllerRequest(controller_id=1))
    assert (result.response.error_code, result.records) == (ErrorCode.INVALID_REQUEST, [])
    assert result.response.error_message.startswith("Controller cannot unregister itself while it is active.")


def test_a_voter_stays_until_it_votes_no_more(make_state: State, after: After) -> None:
    """KAFKA-20865: Apache Kafka 4.4.0 unregisters voters, its fix refuses."""
    state = _with_controllers(make_state(), after, 1, 7)
    own, other = (Voter(number, bytes(15) + bytes([number]), (), (0, 1)) for number in (1, 7))
    for voters, code in (((own, other), ErrorCode.INVALID_REQUEST), ((own,), ErrorCode.NONE)):
        quorum = state.image.quorum.replace(kraft_version=1, voters=voters)
        result = unregister_controller(state.replace(image=state.image.replace(quorum=quorum)), GONE)
        assert (result.response.error_code, len(result.records)) == (code, int(code is ErrorCode.NONE))


def test_itself_comes_before_the_level(make_state: State, after: After) -> None:
    record = m.FeatureLevelRecord(name=METADATA_VERSION, feature_level=32)
    state = after(make_state(), ControllerResult(None, [VersionedRecord(record, 0)]))
    result = unregister_controller(state, m.UnregisterControllerRequest(controller_id=1))
    assert result.response.error_code == ErrorCode.INVALID_REQUEST


def test_a_cluster_of_a_lower_level_refuses(make_state: State, after: After) -> None:
    state = _with_controllers(make_state(), after, 1, 7)
    for level, code in ((32, ErrorCode.UNSUPPORTED_VERSION), (33, ErrorCode.NONE)):
        record = m.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        result = unregister_controller(after(state, ControllerResult(None, [VersionedRecord(record, 0)])), GONE)
        assert (result.response.error_code, len(result.records)) == (code, int(code is ErrorCode.NONE))
