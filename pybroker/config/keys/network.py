"""Kafka's configuration keys for listeners, sockets, threads, purgatories, quotas and metrics.

Names, types, defaults and bounds are those of the reference Apache Kafka; the tests hold them against its jars.
"""

from __future__ import annotations

from pybroker.config.definition import ConfigKey, ConfigType, Importance, ListOf, OneOf, Range, UpdateMode

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
PER_BROKER = UpdateMode.PER_BROKER

# A table reads best with one key per row.
# fmt: off
NETWORK_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("listeners", LIST, "PLAINTEXT://127.0.0.1:9092", HIGH,
              "Addresses to listen on, as NAME://host:port; no host means every interface. Without this setting the "
              "broker serves this machine alone (Kafka: every interface).",
              ListOf(empty=False), update_mode=PER_BROKER, honoured=True),
    ConfigKey("advertised.listeners", LIST, None, HIGH,
              "Addresses that clients are told to use, when they differ from listeners.",
              ListOf(empty=False), honoured=True),
    ConfigKey("listener.security.protocol.map", STRING,
              "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW,
              "Which security protocol each listener name stands for.", update_mode=PER_BROKER, honoured=True),
    ConfigKey("inter.broker.listener.name", STRING, None, MEDIUM,
              "Listener that brokers use among themselves.", honoured=True),
    ConfigKey("security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM,
              "Security protocol among brokers, used when inter.broker.listener.name is not set.",
              OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), honoured=True),
    ConfigKey("early.start.listeners", LIST, None, HIGH,
              "Listeners that open before the authorizer is ready.", ListOf()),
    ConfigKey("num.network.threads", INT, "3", HIGH,
              "How many threads move requests between sockets and the request queue.",
              Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("num.io.threads", INT, "8", HIGH,
              "How many threads handle requests.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("queued.max.requests", INT, "500", HIGH,
              "How many requests may wait for a handler before sockets are no longer read.", Range(1)),
    ConfigKey("queued.max.request.bytes", LONG, "-1", MEDIUM,
              "How many bytes of requests may wait before sockets are no longer read; -1 for no bound."),
    ConfigKey("socket.send.buffer.bytes", INT, "102400", HIGH,
              "Size of the socket send buffer; -1 leaves it to the system."),
    ConfigKey("socket.receive.buffer.bytes", INT, "102400", HIGH,
              "Size of the socket receive buffer; -1 leaves it to the system."),
    ConfigKey("socket.request.max.bytes", INT, "104857600", HIGH,
              "Largest request that is read; a larger one closes its connection.", Range(1), honoured=True),
    ConfigKey("socket.listen.backlog.size", INT, "50", MEDIUM,
              "How many connections may wait to be accepted.", Range(1)),
    ConfigKey("socket.connection.setup.timeout.ms", LONG, "10000", MEDIUM,
              "How long the broker waits for an outgoing connection at the first attempt."),
    ConfigKey("socket.connection.setup.timeout.max.ms", LONG, "30000", MEDIUM,
              "Upper bound of the growing wait for outgoing connections."),
    ConfigKey("max.connections", INT, "2147483647", MEDIUM,
              "How many connections the broker holds at most.", Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("max.connections.per.ip", INT, "2147483647", MEDIUM,
              "How many connections one address may hold.", Range(0), update_mode=CLUSTER_WIDE),
    ConfigKey("max.connections.per.ip.overrides", STRING, "", MEDIUM,
              "Other bounds for some addresses, as host:count pairs.", update_mode=CLUSTER_WIDE),
    ConfigKey("max.connection.creation.rate", INT, "2147483647", MEDIUM,
              "How many new connections per second are accepted.", Range(0), update_mode=CLUSTER_WIDE),
    ConfigKey("connections.max.idle.ms", LONG, "600000", MEDIUM,
              "How long a connection may be idle before it is closed.", honoured=True),
    ConfigKey("connections.max.reauth.ms", LONG, "0", MEDIUM,
              "How long an authenticated session lasts before the client must authenticate again; 0 for ever."),
    ConfigKey("connection.failed.authentication.delay.ms", INT, "100", LOW,
              "How long a connection that failed to authenticate is kept before it is closed.", Range(0)),
    ConfigKey("request.timeout.ms", INT, "30000", HIGH,
              "How long the broker waits for the answer to a request that it sends.", honoured=True),
    ConfigKey("fetch.max.bytes", INT, "57671680", MEDIUM,
              "Most bytes that the answer to one fetch request carries.", Range(1024), honoured=True),
    ConfigKey("fetch.purgatory.purge.interval.requests", INT, "1000", MEDIUM,
              "How many finished delayed fetches gather before they are dropped."),
    ConfigKey("producer.purgatory.purge.interval.requests", INT, "1000", MEDIUM,
              "How many finished delayed produces gather before they are dropped."),
    ConfigKey("delete.records.purgatory.purge.interval.requests", INT, "1", MEDIUM,
              "How many finished delayed record deletions gather before they are dropped."),
    ConfigKey("share.fetch.purgatory.purge.interval.requests", INT, "1000", MEDIUM,
              "How many finished delayed share fetches gather before they are dropped."),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, "1000", MEDIUM,
              "How many fetch sessions the broker remembers.", Range(0), honoured=True),
    ConfigKey("max.request.partition.size.limit", INT, "2000", MEDIUM,
              "How many partitions one DescribeTopicPartitions answer lists at most.", Range(1), honoured=True),
    ConfigKey("quota.window.num", INT, "11", LOW,
              "How many samples a client quota is measured over.", Range(1), honoured=True),
    ConfigKey("quota.window.size.seconds", INT, "1", LOW,
              "Length of one sample of a client quota.", Range(1), honoured=True),
    ConfigKey("controller.quota.window.num", INT, "11", LOW,
              "How many samples the quota on topic changes is measured over.", Range(1), honoured=True),
    ConfigKey("controller.quota.window.size.seconds", INT, "1", LOW,
              "Length of one sample of the quota on topic changes.", Range(1), honoured=True),
    ConfigKey("client.quota.callback.class", CLASS, None, LOW,
              "Class that decides client quotas."),
    ConfigKey("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", LOW,
              "Classes that are told about every metric.", ListOf(), update_mode=CLUSTER_WIDE),
    ConfigKey("metrics.num.samples", INT, "2", LOW,
              "How many samples a metric is computed from.", Range(1)),
    ConfigKey("metrics.sample.window.ms", LONG, "30000", LOW,
              "Length of one sample of a metric.", Range(1)),
    ConfigKey("metrics.recording.level", STRING, "INFO", LOW,
              "Least important metrics that are recorded: INFO, DEBUG or TRACE."),
    ConfigKey("kafka.metrics.reporters", LIST, "", LOW,
              "Classes that report the metrics of the Yammer library.", ListOf()),
    ConfigKey("kafka.metrics.polling.interval.secs", INT, "10", LOW,
              "How often those reporters run.", Range(1)),
    ConfigKey("telemetry.max.bytes", INT, "1048576", LOW,
              "Largest batch of client metrics that is accepted.", Range(1)),
    ConfigKey("unstable.api.versions.enable", BOOLEAN, "false", HIGH,
              "Whether versions of APIs that are not final yet are served.", internal=True),
    ConfigKey("unstable.feature.versions.enable", BOOLEAN, "false", HIGH,
              "Whether feature levels that are not final yet may be set.", internal=True),
    ConfigKey("server.max.startup.time.ms", LONG, "9223372036854775807", MEDIUM,
              "How long the start may take before the broker gives up.", Range(0), internal=True),
    ConfigKey("config.providers", LIST, "", LOW,
              "Names of the providers that resolve ${…} in values.", ListOf(), update_mode=CLUSTER_WIDE),
)
# fmt: on
