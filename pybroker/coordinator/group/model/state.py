"""The states of a classic group and which may follow which.

| state               | means                                       | leaves to                                     |
|---------------------|---------------------------------------------|-----------------------------------------------|
| Empty               | no members; may hold offsets                | PreparingRebalance (a join), Dead (removed)   |
| PreparingRebalance  | members gather: JoinGroup waits             | CompletingRebalance, Empty (all left), Dead   |
| CompletingRebalance | the leader assigns: SyncGroup waits         | Stable, PreparingRebalance (a change), Dead   |
| Stable              | every member has its assignment             | PreparingRebalance (a change), Dead           |
| Dead                | being removed, or its partition moved away  | Empty (the removal could not be written)      |
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
