"""The embedded controller: decides about the cluster's metadata on a machine that has no controller quorum.

Each operation is one module with a pure function from (state, request) to records and response. `controller.Controller`
is the driver: it appends the records, replays them, and lets the response go when they are durable.
"""
