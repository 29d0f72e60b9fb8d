"""Shared by the commands about files of a stopped broker."""
