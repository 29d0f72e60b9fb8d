"""What tests and benchmarks share and no user gets: brokers as processes, Apache Kafka beside us, clusters, crashes,
clients, differential runs, hostile peers.

Their commands run from the root of the checkout: `python -m tests.harness.<module>`. The broker for users' tests is
`pybroker.testing`.
"""
