"""pybroker: a broker that speaks Apache Kafka's protocol and keeps Apache Kafka's files.

Python decides, C moves bytes: this package is the control plane, `csrc/` is the data plane, and `pybroker.native` is
the only place where the two meet. Importing this module imports nothing else.
"""

__version__ = "0.1.0"
