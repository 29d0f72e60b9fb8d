"""The broker's side of a quorum of Apache Kafka's own KRaft controllers: how this broker joins one and lives in it.

Everything runs on the asyncio loop. Reading order: `connection` (one connection to one controller), `leader` (which of
them is active), `channel` (a request that finds the active one), `observer_log` and `fetcher` (the metadata log, read
as an observer, made into images), `lifecycle` (registration, heartbeats, fencing, controlled shutdown), `stand_in`
(who gives heartbeats when this loop cannot), `controller` (what the rest of the broker sees of all that), `start`.
"""
