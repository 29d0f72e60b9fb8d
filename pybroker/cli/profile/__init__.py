"""Shared by the commands of `pybroker profile`."""
