"""What the commands about topics, groups and settings share."""
