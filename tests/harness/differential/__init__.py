"""Random histories of a log played to pybroker and to Apache Kafka at once, and what must be equal afterwards."""
