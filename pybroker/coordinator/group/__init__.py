"""The group coordinator: classic consumer groups and their committed offsets, kept in `__consumer_offsets`.

Reading order: `state.py`, `member.py`, `group.py` (what a group is), `rebalance.py`, `join.py`, `sync.py`,
`heartbeat.py`, `leave.py` (how it moves), `offset_store.py`, `offsets.py` (committed offsets), `records.py`,
`replay.py` (how it is kept), `shard.py` (one partition's worth of it), `coordinator.py` (the asyncio driver).
"""
