"""The tree that `pybroker metadata` walks, of a running cluster or of files at rest."""
