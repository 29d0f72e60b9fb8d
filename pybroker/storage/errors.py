"""The one error of this package."""


class StorageError(Exception):
    """A file of a log dir cannot be used. The text names the file and what to do."""
