"""What the commands of `pybroker perf` share."""
