"""What can be saved of damaged files: a new directory with all that is intact in an old one."""
