"""One module per command, imported when that command is given."""
