"""The Apache Kafka whose protocol, settings and behaviour are the reference here. The Makefile reads this file too."""

KAFKA_VERSION = "4.4.0"
