"""The one version of Spark, and the jars of its Kafka connector. pyproject.toml pins PySpark to the same version."""

from __future__ import annotations

from pybroker.cluster.jars import SCALA_VERSION, Artifact

SPARK_VERSION = "4.2.0"
#: Jars that PySpark's own distribution lacks. The last two are what the connector of that version is built with.
CONNECTOR: tuple[Artifact, ...] = (
    ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", SPARK_VERSION),
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA_VERSION}", SPARK_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
