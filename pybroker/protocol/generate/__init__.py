"""Makes the schema table from Kafka's jars, and the stub, error codes and C codecs from that table.

Run as `python -m pybroker.protocol.generate COMMAND`; see `__main__`. Everything but `schema` and `check` reads only
committed files and needs only the standard library.
"""
