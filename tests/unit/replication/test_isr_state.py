"""The ISR as its leader knows it: transitions one by one, then random lives of it beside a controller's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from registrations import registration

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.isr_state import IsrState, Proposal, Verdict

LEADER = 1


def answer(
    isr: tuple[int, ...] = (), *, code: ErrorCode = ErrorCode.NONE, leader_epoch: int = 0, partition_epoch: int = 1
) -> m.AlterPartitionResponse.PartitionData:
    return m.AlterPartitionResponse.PartitionData(
        error_code=code, leader_id=LEADER, leader_epoch=leader_epoch, isr=list(isr), partition_epoch=partition_epoch
    )


def pending_expansion() -> tuple[IsrState, Proposal]:
    state = IsrState(LEADER, registration(isr=(1, 2)))
    proposal = state.expand(3)
    assert proposal is not None
    return state, proposal


def test_who_is_proposed_to_join_is_waited_for_at_once() -> None:
    state, proposal = pending_expansion()
    assert proposal.isr == (1, 2, 3)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)
    assert (state.isr, state.maximal) == ((1, 2), (1, 2, 3))


def test_who_is_proposed_to_leave_is_waited_for_until_it_has() -> None:
    state = IsrState(LEADER, registration())
    proposal = state.shrink({2, 3})
    assert proposal is not None
    assert proposal.isr == (1,)
    assert state.maximal == (1, 2, 3)
    assert state.on_answer(proposal, answer((1,))) is Verdict.APPLIED
    assert state.maximal == (1,)
    assert state.partition_epoch == 1


def test_one_proposal_at_a_time() -> None:
    state, _ = pending_expansion()
    assert state.shrink({2}) is None
    assert state.expand(3) is None
    assert not state.can_join(3)


@pytest.mark.parametrize("replica", [LEADER, 2, 4])
def test_members_and_strangers_do_not_join(replica: int) -> None:
    assert IsrState(LEADER, registration(isr=(1, 2))).expand(replica) is None


def test_a_leader_never_leaves() -> None:
    state = IsrState(LEADER, registration(isr=(1, 2)))
    assert state.shrink({LEADER}) is None
    proposal = state.shrink({LEADER, 2})
    assert proposal is not None
    assert proposal.isr == (LEADER,)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_the_controller_has_not_done_is_taken_back(code: ErrorCode) -> None:
    state, proposal = pending_expansion()
    assert state.on_answer(proposal, answer(code=code)) is Verdict.NOT_DONE
    assert state.maximal == (1, 2)
    assert state.expand(3) is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_an_overtaken_proposal_may_have_been_done_before(code: ErrorCode) -> None:
    state, proposal = pending_expansion()
    assert state.on_answer(proposal, answer(code=code)) is Verdict.OVERTAKEN
    assert state.maximal == (1, 2, 3), "until the metadata says who is in sync"
    assert state.on_registration(registration(isr=(1, 2), partition_epoch=1))
    assert state.maximal == (1, 2)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_other_errors_pass(code: ErrorCode) -> None:
    state, proposal = pending_expansion()
    assert state.on_answer(proposal, answer(code=code)) is Verdict.RETRY
    assert state.pending is proposal
    assert state.on_answer(proposal, answer((1, 2, 3))) is Verdict.APPLIED
    assert state.maximal == state.isr == (1, 2, 3)


@pytest.mark.parametrize("given", [answer((1, 2), leader_epoch=1), answer((1, 2), partition_epoch=-1)])
def test_an_answer_of_another_time_decides_nothing(given: m.AlterPartitionResponse.PartitionData) -> None:
    state, proposal = pending_expansion()
    assert state.on_answer(proposal, given) is Verdict.OVERTAKEN
    assert state.maximal == (1, 2, 3)


def test_a_proposal_names_replicas_in_their_order() -> None:
    state = IsrState(LEADER, registration(isr=(2, 1)))
    proposal = state.expand(3)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)
    state.take_back(proposal)
    assert state.isr == (2, 1)


def test_the_metadata_may_be_first() -> None:
    state, proposal = pending_expansion()
    assert state.on_registration(registration(isr=(1, 3), partition_epoch=1))
    assert state.on_answer(proposal, answer((1, 2, 3), partition_epoch=1)) is Verdict.STALE
    assert state.isr == (1, 3)


def test_or_last() -> None:
    state, proposal = pending_expansion()
    assert state.on_answer(proposal, answer((1, 2, 3), partition_epoch=5)) is Verdict.APPLIED
    again = state.shrink({2})
    for epoch in (4, 5):
        assert not state.on_registration(registration(isr=(1,), partition_epoch=epoch))
    assert state.pending is again
    assert state.isr == (1, 2, 3)


def test_a_new_leader_epoch_and_other_replicas() -> None:
    state, proposal = pending_expansion()
    changed = registration((1, 4), (1,), leader_epoch=1, partition_epoch=1, leader_recovery_state=1)
    assert state.on_registration(changed)
    assert (state.leader_epoch, state.replicas, state.maximal) == (1, (1, 4), (1,))
    assert state.on_answer(proposal, answer(code=ErrorCode.INELIGIBLE_REPLICA)) is Verdict.STALE
    later = state.expand(4)
    assert later is not None
    assert (later.leader_epoch, later.partition_epoch) == (1, 1)


@dataclass
class _Controller:
    """As far as one partition goes. `log` has (ISR, partition epoch) for all to read, in order."""

    isr: tuple[int, ...]
    partition_epoch: int
    log: list[tuple[tuple[int, ...], int]]
    fenced: set[int]

    def change(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch += 1
        self.log.append((isr, self.partition_epoch))

    def alter(self, proposal: Proposal) -> m.AlterPartitionResponse.PartitionData:
        if proposal.partition_epoch != self.partition_epoch:
            return answer(code=ErrorCode.INVALID_UPDATE_VERSION)
        if self.fenced.intersection(proposal.isr):
            return answer(code=ErrorCode.INELIGIBLE_REPLICA)
        assert LEADER in proposal.isr
        self.change(proposal.isr)
        return answer(self.isr, partition_epoch=self.partition_epoch)


class IsrLives(RuleBasedStateMachine):
    """A leader and a controller with a network that is slow and loses answers, and a metadata log that comes late."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = _Controller((1, 2, 3), 0, [], set())
        self.state = IsrState(LEADER, registration())
        self.requests: list[Proposal] = []
        self.answers: list[tuple[Proposal, m.AlterPartitionResponse.PartitionData]] = []
        self.applied = 0

    def _send(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            assert proposal is self.state.pending
            assert proposal.partition_epoch == self.state.partition_epoch
            self.requests.append(proposal)

    @rule(replica=st.sampled_from([1, 2, 3, 4]))
    def expand(self, replica: int) -> None:
        before = self.state.pending
        proposal = self.state.expand(replica)
        assert proposal is None or before is None
        self._send(proposal)

    @rule(lagging=st.sets(st.sampled_from([1, 2, 3])))
    def shrink(self, lagging: set[int]) -> None:
        before = self.state.pending
        proposal = self.state.shrink(lagging)
        assert proposal is None or before is None
        self._send(proposal)

    @precondition(lambda self: self.requests)
    @rule(is_answer_lost=st.booleans())
    def request_arrives(self, is_answer_lost: bool) -> None:
        proposal = self.requests.pop(0)
        given = self.controller.alter(proposal)
        if not is_answer_lost:
            self.answers.append((proposal, given))
        elif proposal is self.state.pending:
            self.requests.append(proposal)

    @precondition(lambda self: self.answers)
    @rule()
    def answer_arrives(self) -> None:
        proposal, given = self.answers.pop(0)
        if self.state.on_answer(proposal, given) is Verdict.RETRY:
            self.requests.append(proposal)

    @precondition(lambda self: self.applied < len(self.controller.log))
    @rule()
    def metadata_arrives(self) -> None:
        isr, epoch = self.controller.log[self.applied]
        self.applied += 1
        self.state.on_registration(registration(isr=isr, partition_epoch=epoch))

    @rule(replica=st.sampled_from([2, 3]))
    def broker_is_fenced(self, replica: int) -> None:
        self.controller.fenced.add(replica)
        if replica in self.controller.isr:
            self.controller.change(tuple(each for each in self.controller.isr if each != replica))

    @rule(replica=st.sampled_from([2, 3]))
    def broker_returns(self, replica: int) -> None:
        self.controller.fenced.discard(replica)

    @invariant()
    def the_leader_is_in_sync(self) -> None:
        assert LEADER in self.state.isr
        assert LEADER in self.state.maximal

    @invariant()
    def whoever_may_be_in_sync_is_waited_for(self) -> None:
        assert set(self.controller.isr) <= set(self.state.maximal)
        assert set(self.state.isr) <= set(self.state.maximal)

    @invariant()
    def the_leader_is_never_ahead_of_the_controller(self) -> None:
        assert self.state.partition_epoch <= self.controller.partition_epoch

    def teardown(self) -> None:
        """In the end both agree, once everything has arrived."""
        while self.requests or self.answers or self.applied < len(self.controller.log):
            if self.requests:
                self.request_arrives(is_answer_lost=False)
            elif self.answers:
                self.answer_arrives()
            else:
                self.metadata_arrives()
        assert self.state.isr == self.controller.isr
        assert self.state.pending is None


TestIsrLives = IsrLives.TestCase
TestIsrLives.settings = settings(deadline=None, derandomize=True)
