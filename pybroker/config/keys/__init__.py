"""The tables of configuration keys, one file per subject."""
