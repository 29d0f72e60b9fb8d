"""The errors of this package."""


class StorageError(Exception):
    """A file of a log dir cannot be used. The text names the file and what to do."""


class OpeningStopped(StorageError):
    """A log was not opened, nor touched, because the broker stops."""
