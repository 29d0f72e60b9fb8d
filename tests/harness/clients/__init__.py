"""Real Kafka clients behind one command line each, and the scenario that makes them meet.

`driver` knows every client's command lines; `confluent`, `kafka_python` and `aiokafka_client` are such commands in
Python; `scenario` produces with some and consumes with others in groups whose members come and go.
"""
