"""Benchmarks: never imported by the broker, never part of `make test`."""
