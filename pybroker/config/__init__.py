"""Kafka's configuration, and ours: reading server.properties, dynamic values, and what DescribeConfigs shows.

`BrokerConfig.load` is where a broker starts; `TopicConfig.resolve` makes the settings of one topic; `describe` and
`alter` serve the APIs. All of it is values without threads or I/O, but for reading the file at start.
"""
