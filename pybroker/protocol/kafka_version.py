"""The Apache Kafka whose protocol, settings and behaviour are the reference here. The Makefile reads this file too."""

KAFKA_VERSION = "4.4.0"
KAFKA_RELEASE = KAFKA_VERSION.rpartition(".")[0]
"""The release without its patch number, as tools take it (`--release-version`)."""
