"""One `__consumer_offsets` partition's worth of groups: what is done at load and when timers fire."""

from __future__ import annotations

from typing import Any

from pybroker.coordinator.group.model.shard_state import JOIN, SESSION, ShardState
from pybroker.coordinator.group.requests import rebalance
from pybroker.coordinator.outcome import NOTHING, Outcome
from pybroker.coordinator.timer import TimerKey


def on_loaded(state: ShardState) -> list[Outcome]:
    """Everything is replayed: sessions start anew, groups over `group.max.size` rebalance to shrink."""
    outcomes = []
    for group in state.groups.values():
        for member in group.members.values():
            state.restart_session(group, member)
        if len(group.members) > state.settings.max_size:
            reason = f"{len(group.members)} members are more than group.max.size={state.settings.max_size}"
            outcomes.append(rebalance.prepare(state, group, reason))
    return outcomes


def on_timer(state: ShardState, key: TimerKey, payload: Any) -> Outcome:
    """A deadline that `ShardState.timers` held has passed."""
    kind, group_id = key[0], key[1]
    group = state.groups.get(group_id)
    if group is None:
        return NOTHING
    if kind == SESSION:
        return rebalance.expire_session(state, group, key[2])
    if kind == JOIN:
        return rebalance.expire_join(state, group, payload)
    return rebalance.expire_sync(state, group, payload)
