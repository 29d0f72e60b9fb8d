"""pybroker and Apache Kafka measured side by side in one run."""
