"""What `pybroker metadata` walks: one tree, of a running cluster or of files at rest."""
