"""The inside of `pybroker.testing.Broker`: a server process that forks brokers, and their faults. Import `Broker` from
`pybroker.testing`; nothing in here is a promise."""
