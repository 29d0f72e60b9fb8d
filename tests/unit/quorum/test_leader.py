"""Which controller is asked, by what was heard."""

from __future__ import annotations

import asyncio

from pybroker.quorum.leader import NOBODY, Leader, LeaderFinder

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def test_bootstrap_servers_are_asked_in_turn_until_one_names_a_leader() -> None:
    finder = LeaderFinder([A, B, C])
    assert finder.address == A
    finder.failed(A)
    assert finder.address == B
    finder.heard(NOBODY, 4, None)
    finder.failed(B)
    assert finder.address == C
    assert not finder.has_asked_all
    finder.failed(C)
    assert finder.address == A
    assert finder.has_asked_all
    finder.heard(7, 5, B)
    assert finder.leader == Leader(7, 5, B)
    assert finder.address == B


def test_a_leader_that_failed_is_not_believed_in_again_before_all_were_asked() -> None:
    finder = LeaderFinder([A, B])
    finder.heard(7, 5, C)
    finder.failed(C)
    assert finder.leader is None
    finder.heard(7, 5, C)
    assert finder.leader is None, "the hint is as old as the one that has failed"
    finder.failed(A)
    finder.heard(7, 5, C)
    assert finder.leader is None
    finder.failed(B)
    finder.heard(7, 5, C)
    assert finder.leader == Leader(7, 5, C), "nobody knew better"


def test_a_newer_epoch_ends_what_was_known_and_an_older_one_says_nothing() -> None:
    finder = LeaderFinder([A, B])
    finder.heard(7, 5, C)
    finder.heard(8, 4, B)
    assert finder.leader == Leader(7, 5, C)
    finder.failed(C)
    finder.heard(7, 6, C)
    assert finder.leader == Leader(7, 6, C), "it was elected again"
    finder.heard(NOBODY, 7, None)
    assert finder.leader is None
    assert finder.epoch == 7


def test_a_leader_is_found_by_its_id_among_the_voters_that_are_known() -> None:
    finder = LeaderFinder([A], {7: B})
    finder.heard(7, 5, None)
    assert finder.address == B
    finder.heard(8, 6, None)
    assert finder.address == A, "nobody has said where 8 is"


def test_whoever_answers_as_a_leader_is_one() -> None:
    finder = LeaderFinder([A, B])
    finder.heard(7, 5, C)
    finder.failed(C)
    finder.answered(A)
    assert finder.leader == Leader(7, 5, A)


def test_waiting_for_a_leader_and_for_another() -> None:
    async def run() -> None:
        finder = LeaderFinder([A])
        known = asyncio.create_task(finder.known())
        await asyncio.sleep(0)
        assert not known.done()
        finder.heard(7, 5, A)
        leader = await known
        replaced = asyncio.create_task(finder.replaced(leader))
        finder.failed(A)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not replaced.done(), "a leader nobody else has taken the place of may still answer"
        finder.heard(8, 6, B)
        await replaced

    asyncio.run(run())
