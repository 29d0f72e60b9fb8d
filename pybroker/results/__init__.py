"""Results of benchmarks: one schema for all of them, what reads each kind of result file, and where rows are published.

Part of the package and not of `bench/`, because `pybroker bench publish` has to work where pybroker is installed and
no checkout is. Standard library only; whoever has rows to send to a topic needs confluent-kafka as well.
docs/benchmarks.md describes the schema for people.
"""
