"""Saves damaged files: a new directory with everything that is intact in an old one."""
