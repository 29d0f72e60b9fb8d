"""The group coordinator: classic consumer groups and their committed offsets, kept in `__consumer_offsets`.

Reading order: `state.py`, `member.py` and `group.py` describe a group. `rebalance.py`, `join.py`, `sync.py`,
`heartbeat.py` and `leave.py` move it. `offset_store.py` and `offsets.py` have committed offsets, `records.py` and
`replay.py` the way they are kept. `shard.py` is one partition's worth of that, and `coordinator.py` the asyncio driver.
"""
