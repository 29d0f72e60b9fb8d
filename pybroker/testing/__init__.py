"""Helpers for tests and benchmarks: brokers as child processes, Apache Kafka beside us. The broker never imports it."""
