"""The files of a stopped broker, read without one: what they hold, what in them does not add up, and what can be saved.

Everything here blocks, runs on the thread of whoever calls it and writes nothing, but for `repair`. The dirs are ours
or Apache Kafka's; the formats are the same. `docs/log-files.md` is the manual.
"""
