"""Log dirs and the logs in them. `files` (identity, checkpoints, markers, the lock), `rings`, `dirs` and `logs` lie one
on the other; `offline` reads the files of a stopped broker.

Functions of `files` block and are meant for start, stop and slow periodic work (call them from a thread when the event
loop runs). Every write is atomic and durable: a reader after a crash sees the old content or the new, never a part.
"""
