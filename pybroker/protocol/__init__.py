"""Kafka's wire protocol and record formats: messages, codecs, error codes.

Everything here is pure (no I/O, no threads, no state beyond caches of generated code) and may be called from any thread
that holds the GIL. The facts come from `schema/*.schema`; see `pybroker.protocol.generate`.
"""
