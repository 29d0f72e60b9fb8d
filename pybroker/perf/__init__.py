"""Load on a broker, as `pybroker perf` makes it: the generator, what it measures, results and their plots.

The generator is a program of its own in C (`bench/load`, `pbload`): what is here starts it, reads its lines and shows
them. Consumer groups are real clients in Python. Nothing here is part of a broker.
"""
