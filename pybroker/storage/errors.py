"""The errors of this package."""


class StorageError(Exception):
    """A file of a log dir cannot be used. The text names the file and what to do."""


class DirectoryOffline(StorageError):
    """A log cannot be opened because a log dir, in which it lies or may lie, is out of service."""


class NoDescriptors(StorageError):
    """A log was not opened, nor touched, because no file descriptor is left for it. That may pass."""


class OpeningStopped(StorageError):
    """A log was not opened, nor touched, because the broker stops."""


def said_of(error: Exception) -> str:
    """The fault in a file's content, in a few words, without all bytes that could not be decoded."""
    text = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
    return f"{type(error).__name__}: {text}"
