"""The broker's side of a quorum of Apache Kafka's own KRaft controllers: how this broker joins one and lives in it.

Everything runs on the asyncio loop. Reading order: `connection` (one connection to one controller), `leader` (which of
them is active), `channel` (a request that finds the active one). `observer_log` and `fetcher` read the metadata log as
an observer and make images of it. `lifecycle` has registration, heartbeats, fencing and controlled shutdown, and
`stand_in` the heartbeats when this loop cannot send them. `controller` is the view of the rest of the broker.
"""
