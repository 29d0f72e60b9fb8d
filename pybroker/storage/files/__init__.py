"""The files of a log dir that are not record logs: identity, checkpoints, markers and the lock."""
