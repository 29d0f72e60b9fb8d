"""One module per command, imported when that command is given; a command with commands of its own is a package."""
