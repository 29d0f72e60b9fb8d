"""The cluster's metadata: an immutable `MetadataImage`, made only by replaying KRaft metadata records.

Reading order: `image` (the state), `delta` (how a record changes it), `records` and `snapshot` (records as files). Then
`log_files` and `file_log` (the log `__cluster_metadata-0`), `bootstrap` (a new log dir), `loader` (from log to images
and publishers), `cache` (encoded Metadata answers).
"""
