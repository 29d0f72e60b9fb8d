"""Shared by `pybroker produce` and `pybroker consume`."""
