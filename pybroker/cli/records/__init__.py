"""What `pybroker produce` and `pybroker consume` share."""
