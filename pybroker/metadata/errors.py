"""Errors of the metadata log and of its replay."""


class MetadataError(Exception):
    """The metadata log cannot be read, or a record in it makes no sense here.

    Skipping such a record would let this broker's state drift from the cluster's silently, so nothing that raises this
    may go on. The text says where and what to do.
    """


class DamagedBatch(MetadataError):
    """Bytes that are no batch, or not the one that was written. The source of the batch may have a better copy."""


class MetadataLogError(Exception):
    """An append to the metadata log failed: it is not durable, and the log takes no more until a restart."""
