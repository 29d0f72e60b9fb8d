"""Shared by the commands about topics, groups and settings."""
