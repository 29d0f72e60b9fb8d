"""The group coordinator: classic consumer groups and their committed offsets, kept in `__consumer_offsets`.

Reading order: `model/` describes a group: its state, its members and its committed offsets. `requests/` has a file for
each request that moves it, and `log/` the records it is kept in. `shard.py` is one partition's worth of that, and
`coordinator.py` the asyncio driver.
"""
