"""What the commands of `pybroker profile` share."""
