"""The files of a log dir that are not record logs: identity, checkpoints, markers and the lock.

All functions here block and are meant for start, stop and slow periodic work (call them from a thread when the event
loop runs). Every write is atomic and durable: a reader after a crash sees the old content or the new, never a part.
"""
