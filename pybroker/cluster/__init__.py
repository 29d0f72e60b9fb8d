"""A cluster on this machine, led by Apache Kafka's own controllers: `pybroker cluster`, and what our tests run on.

`local_cluster.LocalCluster` starts and ends it. `layout` describes its nodes and its saved file. `settings` and
`formatting` prepare each node, `readiness` tells whether the nodes serve, and `network` makes the namespaces they may
live in. Brokers are of pybroker or of Apache Kafka. Its jars are fetched by `jars`.
"""
