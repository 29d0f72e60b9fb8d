"""The checker accepts what a correct cluster may do, and finds each thing that it must not do, planted here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.cluster.checker import Kind, check
from tests.harness.cluster.history import CommitEvent, History, Seen, Transaction, decode_value, encode_value

PLACE = ("t", 0)
GROUP = "g"


def commit(offset: int, began: float, ended: float) -> CommitEvent:
    return CommitEvent(GROUP, PLACE, offset, True, began, ended)


def fetch(offset: int, began: float, ended: float) -> CommitEvent:
    return CommitEvent(GROUP, PLACE, offset, False, began, ended)


def sound_history() -> History:
    """Two producers with four records each, of which one has an unknown fate and is there; a group that moved once."""
    history = History()
    log = []
    for number in range(4):
        for producer in (0, 1):
            assert history.add_sent((producer, PLACE)) == number
            offset = len(log)
            log.append(Seen(offset, (producer, number)))
            if (producer, number) == (1, 3):
                history.add_unknown((producer, PLACE), number, "timed out")
            elif (producer, number) == (0, 1):
                history.add_acknowledged((producer, PLACE), number, None)
            else:
                history.add_acknowledged((producer, PLACE), number, offset)
    history.final_reads[PLACE] = log
    for seen in log[:5]:
        history.add_group_read(GROUP, 0, PLACE, seen)
    for seen in log[3:]:
        history.add_group_read(GROUP, 1, PLACE, seen)
    history.commits += [fetch(-1, 0, 1), commit(3, 2, 3), fetch(3, 4, 5), commit(8, 6, 7)]
    return history


def test_a_correct_cluster_is_accepted() -> None:
    assert check(sound_history()) == []


def lose(history: History) -> None:
    history.group_reads.clear()
    history.commits.clear()
    history.final_reads[PLACE] = [seen for seen in history.final_reads[PLACE] if seen.identity != (0, 1)]


def move(history: History) -> None:
    history.acknowledged[0, PLACE][2] = 5


def double(history: History) -> None:
    history.final_reads[PLACE].append(Seen(8, (0, 3)))


def reorder(history: History) -> None:
    history.group_reads.clear()
    history.commits.clear()
    log = history.final_reads[PLACE]
    log[1], log[3] = Seen(1, log[3].identity), Seen(3, log[1].identity)
    history.acknowledged[1, PLACE].update({0: 3, 1: 1})


def deliver_backwards(history: History) -> None:
    log = history.final_reads[PLACE]
    log[2], log[3] = log[3], log[2]


def invent(history: History) -> None:
    history.final_reads[PLACE].append(Seen(8, (0, 4)))


def invent_a_stranger(history: History) -> None:
    history.final_reads[PLACE].append(Seen(8, None))


def take_back_what_was_read(history: History) -> None:
    history.commits.clear()
    history.final_reads[PLACE].pop()  # of unknown fate, so nobody promised it but to the group


def replace_what_was_read(history: History) -> None:
    history.add_group_read(GROUP, 0, PLACE, Seen(2, (1, 1)))


def lose_a_commit(history: History) -> None:
    history.commits.append(fetch(3, 8, 9))


def lose_all_commits(history: History) -> None:
    history.commits.append(fetch(-1, 8, 9))


def commit_backwards(history: History) -> None:
    history.commits.append(commit(7, 8, 9))


def skip(history: History) -> None:
    del history.group_reads[GROUP, 1][PLACE][3]


def read_aborted(history: History) -> None:
    history.transactions.append(Transaction("tx", (((1, PLACE), 3),), False))


def read_aborted_once(history: History) -> None:
    history.final_reads[PLACE].pop()
    history.commits.clear()
    history.transactions.append(Transaction("tx", (((1, PLACE), 3),), False))


def tear(history: History) -> None:
    history.add_sent((2, PLACE))
    history.transactions.append(Transaction("tx", (((1, PLACE), 3), ((2, PLACE), 0)), None))


def fail(history: History) -> None:
    history.add_client_error("fatal: fenced")


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, Kind.LOST),
        (move, Kind.MOVED),
        (double, Kind.DOUBLED),
        (reorder, Kind.REORDERED),
        (deliver_backwards, Kind.REORDERED),
        (invent, Kind.INVENTED),
        (invent_a_stranger, Kind.INVENTED),
        (take_back_what_was_read, Kind.UNREAD),
        (replace_what_was_read, Kind.UNREAD),
        (lose_a_commit, Kind.COMMIT_LOST),
        (lose_all_commits, Kind.COMMIT_LOST),
        (commit_backwards, Kind.COMMIT_LOST),
        (skip, Kind.SKIPPED),
        (read_aborted, Kind.ABORTED_READ),
        (tear, Kind.TORN),
        (fail, Kind.CLIENT_ERROR),
    ],
)
def test_each_planted_violation_is_found(plant: Callable[[History], None], kind: Kind) -> None:
    history = sound_history()
    plant(history)
    assert {violation.kind for violation in check(history)} == {kind}


def test_what_an_aborted_transaction_showed_for_a_while_is_found() -> None:
    history = sound_history()
    read_aborted_once(history)
    assert {violation.kind for violation in check(history)} == {Kind.ABORTED_READ, Kind.UNREAD}


def test_transactions_that_are_whole_or_absent_are_accepted() -> None:
    history = sound_history()
    whole = (((0, PLACE), 0), ((1, PLACE), 0))
    absent = tuple(((2, PLACE), history.add_sent((2, PLACE))) for _ in range(2))
    history.transactions += [Transaction("a", whole, True), Transaction("b", whole, None)]
    history.transactions += [Transaction("c", absent, False), Transaction("d", absent, None)]
    assert check(history) == []


def test_a_fetch_beside_a_commit_may_show_either() -> None:
    history = sound_history()
    history.commits += [fetch(3, 6.5, 9)]  # asked before the commit of 8 was acknowledged
    assert check(history) == []


def test_values_name_their_record() -> None:
    assert decode_value(encode_value(7, 1 << 40, b"rest")) == (7, 1 << 40)
    assert decode_value(None) is None
    assert decode_value(b"short") is None
    assert decode_value(b"x" * 40) is None


def test_the_longest_silence_is_of_one_partition() -> None:
    history = History()
    history.acknowledged_times[PLACE] = [1.0, 2.0, 9.0]
    history.acknowledged_times["t", 1] = [1.0, 3.0, 5.0, 7.0, 9.0]
    assert history.longest_silence(1.0, 10.0) == 7.0
    assert history.longest_silence(1.0, 6.0) == 4.0
