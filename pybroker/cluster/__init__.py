"""A cluster on this machine, led by Apache Kafka's own controllers: `pybroker cluster`, and what our tests run on.

`local_cluster.LocalCluster` starts and ends it; `layout` is what it consists of and what is kept of it; `settings` and
`formatting` are what each node is given, `readiness` whether they serve, `network` the namespaces they may live in.
Brokers are of pybroker or of Apache Kafka. Its jars are fetched by `jars`.
"""
