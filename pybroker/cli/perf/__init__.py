"""Shared by the commands of `pybroker perf`."""
