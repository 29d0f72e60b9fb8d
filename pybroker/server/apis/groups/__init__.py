"""APIs of groups and their offsets."""
