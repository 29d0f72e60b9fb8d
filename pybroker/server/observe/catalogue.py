"""Every metric the broker has, in the order in which they are told: docs/metrics.md is made from this table.

`python -m pybroker.server.observe.catalogue` prints that document's table.
"""

from __future__ import annotations

from pybroker.observability.exposition import Metric

_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_DIRECTORY = ("directory",)


def _kafka(bean: str, name: str) -> str:
    return f"kafka.{bean},name={name}"


_BROKER = "server:type=BrokerTopicMetrics"
_REPLICAS = "server:type=ReplicaManager"
_VERIFICATION = "server:type=AddPartitionsToTxnManager"
_CONTROLLER = "controller:type=KafkaController"
_LOG = "log:type=Log"

# ---- the broker --------------------------------------------------------------------------------------------------

INFO = Metric(
    "pybroker_info",
    "gauge",
    "Always 1; its labels say what runs.",
    ("version", "node_id", "cluster_id", "io", "engine", "durability", "profile", "crc32c"),
)
READY = Metric("pybroker_ready", "gauge", "1 while the broker serves clients, as /ready says.")
CONTROL_LOOP_SECONDS = Metric(
    "pybroker_control_loop_delay_seconds", "gauge", "How long this scrape waited until the control loop took it up."
)
LOG_LINES_LEFT_OUT = Metric(
    "pybroker_log_lines_left_out_total",
    "counter",
    "Lines that the log was spared because a peer or a loop had caused many like them; a summary counts them there.",
    ("level",),
)
LONGEST_TURN_SECONDS = Metric(
    "pybroker_control_loop_longest_turn_seconds",
    "gauge",
    "CPU time of the control loop's longest turn in the last minute or two.",
)
LONG_TURNS = Metric(
    "pybroker_control_loop_long_turns_total",
    "counter",
    "Turns of the control loop that took more than 20 ms of CPU time, those of the start included.",
)
EVENTS = Metric("pybroker_events_total", "counter", "Events that `pybroker events` shows.", ("kind",))

# ---- clients -----------------------------------------------------------------------------------------------------

CONNECTIONS = Metric(
    "pybroker_connections",
    "gauge",
    "Open connections of clients.",
    kafka="kafka.server:type=socket-server-metrics,name=connection-count",
)
CONNECTIONS_ACCEPTED = Metric(
    "pybroker_connections_accepted_total",
    "counter",
    "Connections that were accepted.",
    kafka="kafka.server:type=socket-server-metrics,name=connection-creation-total",
)
CONNECTIONS_REFUSED = Metric(
    "pybroker_connections_refused_total", "counter", "Connections that were closed because of max.connections."
)
RECEIVED_BYTES = Metric(
    "pybroker_network_received_bytes_total",
    "counter",
    "Bytes from clients, requests whole.",
    kafka="kafka.server:type=socket-server-metrics,name=incoming-byte-total",
)
SENT_BYTES = Metric(
    "pybroker_network_sent_bytes_total",
    "counter",
    "Bytes to clients, responses whole.",
    kafka="kafka.server:type=socket-server-metrics,name=outgoing-byte-total",
)
REQUEST_SECONDS = Metric(
    "pybroker_request_seconds",
    "histogram",
    "Time of answered requests by part: queue, local, remote (waiting for data, a write or a sync), send, and total.",
    ("api", "stage"),
    "kafka.network:type=RequestMetrics,name=RequestsPerSec|RequestQueueTimeMs|LocalTimeMs|RemoteTimeMs|"
    "ResponseSendTimeMs|TotalTimeMs",
)
INVALID_REQUESTS = Metric(
    "pybroker_invalid_requests_total", "counter", "Requests that cost their clients the connection."
)
SLOW_REQUESTS = Metric(
    "pybroker_slow_requests_total", "counter", "Requests that took longer than pybroker.slow.request.ms."
)
WAITING_REQUESTS = Metric(
    "pybroker_control_requests",
    "gauge",
    "Requests that wait for the control plane or are served by it.",
    kafka=_kafka("network:type=RequestChannel", "RequestQueueSize"),
)
DELAYED_FETCHES = Metric(
    "pybroker_delayed_fetches",
    "gauge",
    "Fetches that wait for data.",
    kafka="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Fetch",
)
FETCH_SESSIONS = Metric(
    "pybroker_fetch_sessions",
    "gauge",
    "Incremental fetch sessions.",
    kafka=_kafka("server:type=FetchSessionCache", "NumIncrementalFetchSessions"),
)
BUFFER_BYTES = Metric("pybroker_buffer_bytes", "gauge", "Receive buffers that connections and requests hold.")
BUFFER_BUDGET_BYTES = Metric("pybroker_buffer_budget_bytes", "gauge", "How much they may hold; beyond it clients wait.")
THROTTLED_CONNECTIONS = Metric(
    "pybroker_throttled_connections", "gauge", "Connections that wait for buffer memory now."
)
THROTTLES = Metric("pybroker_throttles_total", "counter", "How often a connection has had to wait for buffer memory.")
SLOW_CONNECTIONS_CLOSED = Metric(
    "pybroker_slow_connections_closed_total",
    "counter",
    "Connections closed because their unfinished requests held buffer memory that others waited for.",
)
QUOTA_THROTTLES = Metric(
    "pybroker_quota_throttles_total", "counter", "How often a client was over its quota and had to wait."
)

# ---- produce and fetch -------------------------------------------------------------------------------------------

PRODUCE_REQUESTS = Metric(
    "pybroker_produce_requests_total",
    "counter",
    "Produce requests.",
    kafka=_kafka(_BROKER, "TotalProduceRequestsPerSec"),
)
FETCH_REQUESTS = Metric(
    "pybroker_fetch_requests_total", "counter", "Fetch requests.", kafka=_kafka(_BROKER, "TotalFetchRequestsPerSec")
)
FAILED_PRODUCES = Metric(
    "pybroker_failed_produce_partitions_total",
    "counter",
    "Partitions of Produce requests that were answered with an error.",
    kafka=_kafka(_BROKER, "FailedProduceRequestsPerSec"),
)
PRODUCED_BYTES = Metric(
    "pybroker_produced_bytes_total",
    "counter",
    "Bytes of batches that clients have appended, over all topics.",
    kafka=_kafka(_BROKER, "BytesInPerSec"),
)
PRODUCED_RECORDS = Metric(
    "pybroker_produced_records_total",
    "counter",
    "Records that clients have appended, over all topics.",
    kafka=_kafka(_BROKER, "MessagesInPerSec"),
)
PRODUCED_BATCHES = Metric("pybroker_produced_batches_total", "counter", "Batches that clients have appended.")
TOPIC_BYTES_IN = Metric(
    "pybroker_topic_bytes_in_total",
    "counter",
    "Bytes appended to the topic since its logs were opened, by the broker itself too.",
    _TOPIC,
    _kafka(_BROKER, "BytesInPerSec,topic=…"),
)
TOPIC_RECORDS_IN = Metric(
    "pybroker_topic_records_in_total",
    "counter",
    "Records appended to the topic since its logs were opened.",
    _TOPIC,
    _kafka(_BROKER, "MessagesInPerSec,topic=…"),
)
TOPIC_BYTES_OUT = Metric(
    "pybroker_topic_bytes_out_total",
    "counter",
    "Bytes of the topic that were sent to consumers since its logs were opened.",
    _TOPIC,
    _kafka(_BROKER, "BytesOutPerSec,topic=…"),
)

# ---- the data plane ----------------------------------------------------------------------------------------------

REACTOR_TURNS = Metric("pybroker_reactor_turns_total", "counter", "Turns of all reactors.")
REACTOR_TURN_SECONDS = Metric(
    "pybroker_reactor_turn_seconds",
    "histogram",
    "From the first thing a reactor heard to the end of the turn's work: a long one is a stall for its connections.",
)
DOORBELL_SECONDS = Metric(
    "pybroker_doorbell_seconds", "histogram", "From the data plane's ringing to the control plane's taking events."
)
THREAD_CPU_SECONDS = Metric(
    "pybroker_thread_cpu_seconds_total",
    "counter",
    "CPU time of all threads of that name: 1 minus a reactor's rate is its idle share.",
    ("thread",),
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
LOG_WRITES = Metric("pybroker_log_writes_total", "counter", "Writes into logs: their files, or their tail rings.")
LOG_WRITTEN_BYTES = Metric("pybroker_log_written_bytes_total", "counter", "Bytes of these writes.")
SEGMENT_ROLLS = Metric("pybroker_segment_rolls_total", "counter", "Segments begun by what clients have appended.")
FLUSH_SECONDS = Metric(
    "pybroker_flush_seconds",
    "histogram",
    "Syncs of one partition's log, of some that share a flush of their disk, and of a whole file system for many.",
    ("of",),
    _kafka("log:type=LogFlushStats", "LogFlushRateAndTimeMs"),
)
GROUP_COMMIT_APPENDS = Metric(
    "pybroker_group_commit_appends",
    "histogram",
    "With durable acknowledgements: how many appends one sync of a partition let end.",
)
COLD_READS = Metric(
    "pybroker_cold_reads_total", "counter", "How often a fetch could not go on without reading from the disk."
)
COLD_READ_BYTES = Metric("pybroker_cold_read_bytes_total", "counter", "Bytes of history read into memory.")
COLD_DROPPED_BYTES = Metric(
    "pybroker_cold_dropped_bytes_total",
    "counter",
    "Bytes of history dropped from memory, to make room or as nobody came to them.",
)
EMPTY_FETCHES = Metric(
    "pybroker_empty_fetches_total",
    "counter",
    "How often all records that a fetch had found were gone before it was answered, so that it was read again. A log "
    "that is truncated does this now and then; more is a fault of the broker.",
)
LARGE_BATCHES = Metric(
    "pybroker_large_batches_total",
    "counter",
    "Batches that were validated off the reactors, as they unpack to more than 1 MiB or take long to compress anew.",
)
LARGE_BATCH_BYTES = Metric(
    "pybroker_large_batch_bytes_total", "counter", "Bytes that accepted batches unpacked to off the reactors."
)
LARGE_BATCHES_NOW = Metric(
    "pybroker_large_batches", "gauge", "Batches that are validated off the reactors now, or wait for that."
)

# ---- durability --------------------------------------------------------------------------------------------------

DEBT_BYTES = Metric(
    "pybroker_durability_debt_bytes", "gauge", "The cost of a power cut now: bytes not known to be durable."
)
DEBT_SECONDS = Metric("pybroker_durability_debt_seconds", "gauge", "For how long the oldest of them has been written.")
RING_BUDGET_BYTES = Metric("pybroker_tail_ring_budget_bytes", "gauge", "Bytes tail rings may take; 0 without them.")
RING_BYTES = Metric("pybroker_tail_ring_bytes", "gauge", "Bytes tail rings take.")
HOT_LOGS = Metric("pybroker_hot_logs", "gauge", "Logs that have a tail ring now.")
DIRECTORY_ONLINE = Metric(
    "pybroker_log_dir_online",
    "gauge",
    "1 while the log dir is in service.",
    _DIRECTORY,
    _kafka("log:type=LogManager", "LogDirectoryOffline"),
)
DIRECTORY_BYTES = Metric("pybroker_log_dir_size_bytes", "gauge", "Bytes of the logs there.", _DIRECTORY)
DIRECTORY_FREE_BYTES = Metric("pybroker_log_dir_free_bytes", "gauge", "Free on its file system.", _DIRECTORY)
DIRECTORY_RESERVE_BYTES = Metric(
    "pybroker_log_dir_reserve_bytes",
    "gauge",
    "Bytes that must be free on its file system, or producers are refused: pybroker.log.dir.reserve.bytes.",
    _DIRECTORY,
)
DIRECTORY_BELOW_RESERVE = Metric(
    "pybroker_log_dir_below_reserve",
    "gauge",
    "1 while producers are refused, because less than the reserve is free.",
    _DIRECTORY,
)
DIRECTORY_FLUSH_DOUBTFUL = Metric(
    "pybroker_log_dir_flush_doubtful",
    "gauge",
    "1 where flushes do not seem to be real, so that what is acknowledged as durable may go with the power. Only told "
    "where something promises durability.",
    ("directory", "finding"),
)
PAGE_CACHE_BYTES = Metric(
    "pybroker_log_dir_page_cache_bytes",
    "gauge",
    "Segments that lie in the page cache: all, dirty, and under writeback. Up to 30 s old; needs Linux 6.5.",
    ("directory", "state"),
)

# ---- partitions --------------------------------------------------------------------------------------------------

PARTITIONS = Metric("pybroker_partitions", "gauge", "Open logs.", kafka=_kafka(_REPLICAS, "PartitionCount"))
LEADERS = Metric("pybroker_leader_partitions", "gauge", "Partitions led here.", kafka=_kafka(_REPLICAS, "LeaderCount"))
UNDER_REPLICATED = Metric(
    "pybroker_under_replicated_partitions",
    "gauge",
    "Partitions led here with fewer replicas in sync than they have.",
    kafka=_kafka(_REPLICAS, "UnderReplicatedPartitions"),
)
OFFLINE_REPLICAS = Metric(
    "pybroker_offline_replicas",
    "gauge",
    "Partitions assigned to this broker that it cannot serve.",
    kafka=_kafka(_REPLICAS, "OfflineReplicaCount"),
)
LOST_RECORDS = Metric(
    "pybroker_logs_with_lost_records",
    "gauge",
    "Logs that this start has found to lack records which they had, until another replica has brought those back.",
)
UNDER_MIN_ISR = Metric(
    "pybroker_under_min_isr_partitions",
    "gauge",
    "Partitions led here with fewer replicas in sync than min.insync.replicas asks for.",
    kafka=_kafka(_REPLICAS, "UnderMinIsrPartitionCount"),
)
ISR_EXPANSIONS = Metric(
    "pybroker_isr_expansions_total",
    "counter",
    "Times that a follower came into sync again with a leader here.",
    kafka=_kafka(_REPLICAS, "IsrExpandsPerSec"),
)
ISR_SHRINKAGES = Metric(
    "pybroker_isr_shrinkages_total",
    "counter",
    "Times that followers fell out of sync with a leader here, for replica.lag.time.max.ms.",
    kafka=_kafka(_REPLICAS, "IsrShrinksPerSec"),
)
ISR_FAILURES = Metric(
    "pybroker_isr_update_failures_total",
    "counter",
    "Changes of an ISR that the controller did not make.",
    kafka=_kafka(_REPLICAS, "FailedIsrUpdatesPerSec"),
)
FOLLOWING = Metric("pybroker_following_partitions", "gauge", "Partitions that follow a leader elsewhere.")
MAX_LAG = Metric(
    "pybroker_replica_max_lag_records",
    "gauge",
    "Records that the follower here which lacks most is behind its leader's high watermark.",
    kafka="kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
)
REPLICATED_BYTES = Metric(
    "pybroker_replication_received_bytes_total",
    "counter",
    "Bytes of records that followers here have taken over.",
    kafka=_kafka(_BROKER, "ReplicationBytesInPerSec"),
)
FETCHER_CONNECTIONS = Metric(
    "pybroker_replica_fetcher_connections", "gauge", "Connections by which followers here reach their leaders."
)
FETCHER_FAILURES = Metric(
    "pybroker_replica_fetcher_failures_total",
    "counter",
    "Connections to leaders that failed, and answers of leaders that could not be used.",
)
VERIFICATION_SECONDS = Metric(
    "pybroker_transaction_verification_seconds",
    "histogram",
    "Until transaction coordinators had said what they know of a transaction that begins to write here.",
    kafka=_kafka(_VERIFICATION, "VerificationTimeMs"),
)
VERIFICATION_FAILURES = Metric(
    "pybroker_transaction_verification_failures_total",
    "counter",
    "Partitions that were not found to be part of a transaction that wrote to them, or could not be asked about.",
    kafka=_kafka(_VERIFICATION, "VerificationFailureRate"),
)
LOG_START_OFFSET = Metric(
    "pybroker_partition_log_start_offset", "gauge", "First offset.", _PARTITION, _kafka(_LOG, "LogStartOffset")
)
LOG_END_OFFSET = Metric(
    "pybroker_partition_log_end_offset", "gauge", "Behind the last record.", _PARTITION, _kafka(_LOG, "LogEndOffset")
)
HIGH_WATERMARK = Metric("pybroker_partition_high_watermark", "gauge", "Up to here consumers may read.", _PARTITION)
DURABLE_OFFSET = Metric(
    "pybroker_partition_durable_offset", "gauge", "Up to here a power cut takes nothing.", _PARTITION
)
PARTITION_BYTES = Metric(
    "pybroker_partition_size_bytes", "gauge", "Bytes of its segments.", _PARTITION, _kafka(_LOG, "Size")
)

# ---- the controller ----------------------------------------------------------------------------------------------

ACTIVE_CONTROLLERS = Metric(
    "pybroker_active_controllers",
    "gauge",
    "1 where the controller is part of this broker, 0 where Apache Kafka's controllers are.",
    kafka=_kafka(_CONTROLLER, "ActiveControllerCount"),
)
FENCED = Metric(
    "pybroker_fenced",
    "gauge",
    "1 while the metadata says that clients shall not come here.",
    kafka=_kafka("server:type=KafkaServer", "BrokerState"),
)
TOPICS = Metric("pybroker_topics", "gauge", "Topics of the cluster.", kafka=_kafka(_CONTROLLER, "GlobalTopicCount"))
CLUSTER_PARTITIONS = Metric(
    "pybroker_cluster_partitions",
    "gauge",
    "Partitions of the cluster.",
    kafka=_kafka(_CONTROLLER, "GlobalPartitionCount"),
)
OFFLINE_PARTITIONS = Metric(
    "pybroker_offline_partitions",
    "gauge",
    "Partitions of the cluster without a leader.",
    kafka=_kafka(_CONTROLLER, "OfflinePartitionsCount"),
)
METADATA_END_OFFSET = Metric(
    "pybroker_metadata_end_offset",
    "gauge",
    "Behind the last metadata record that is in effect.",
    kafka="kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset",
)

# ---- groups ------------------------------------------------------------------------------------------------------

GROUPS = Metric(
    "pybroker_groups",
    "gauge",
    "Groups by state.",
    ("state",),
    _kafka("coordinator.group:type=GroupMetadataManager", "NumGroups|NumGroupsStable|…"),
)
GROUP_OFFSETS = Metric(
    "pybroker_group_offsets",
    "gauge",
    "Committed offsets.",
    kafka=_kafka("coordinator.group:type=GroupMetadataManager", "NumOffsets"),
)
GROUP_MEMBER_BYTES = Metric(
    "pybroker_group_member_bytes", "gauge", "Memory that members of groups take: metadata, assignments and names."
)
GROUP_MEMBER_LIMIT_BYTES = Metric(
    "pybroker_group_member_limit_bytes", "gauge", "How much they may take: pybroker.group.members.max.bytes."
)
GROUP_MEMBERS_REFUSED = Metric(
    "pybroker_group_members_refused_total",
    "counter",
    "JoinGroup and SyncGroup requests that were refused because members would take more.",
)
GROUP_LAG = Metric(
    "pybroker_group_lag_records",
    "gauge",
    "Offsets between what the group has committed and the high watermark; of the first 20,000 committed offsets.",
    ("group", "topic", "partition"),
)

# ---- upkeep ------------------------------------------------------------------------------------------------------

CLEANER_RUNNING = Metric("pybroker_cleaner_passes", "gauge", "Passes of the log cleaner under way.")
CLEANED_LOGS = Metric("pybroker_cleaner_cleaned_logs_total", "counter", "Passes that have ended.")
CLEANER_READ_BYTES = Metric("pybroker_cleaner_read_bytes_total", "counter", "Bytes read by them.")
CLEANER_WRITTEN_BYTES = Metric("pybroker_cleaner_written_bytes_total", "counter", "Bytes written by them.")
CLEANER_DIRTIEST = Metric(
    "pybroker_cleaner_max_dirty_ratio",
    "gauge",
    "The share of the dirtiest compacted log that is not clean.",
    kafka=_kafka("log:type=LogCleanerManager", "max-dirty-percent"),
)
CLEANER_UNCLEANABLE = Metric(
    "pybroker_cleaner_uncleanable_logs",
    "gauge",
    "Compacted logs that cannot be cleaned.",
    kafka=_kafka("log:type=LogCleanerManager", "uncleanable-partitions-count"),
)
SCRUB_CHECKED_BYTES = Metric("pybroker_scrub_checked_bytes_total", "counter", "Bytes that the scrub has read again.")
SCRUB_FINDINGS = Metric("pybroker_scrub_findings_total", "counter", "Damage that it has found.")

# ---- the process -------------------------------------------------------------------------------------------------

PROCESS_CPU_SECONDS = Metric("process_cpu_seconds_total", "counter", "CPU time, user and system.")
PROCESS_RESIDENT_BYTES = Metric("process_resident_memory_bytes", "gauge", "Resident memory.")
PROCESS_OPEN_FDS = Metric("process_open_fds", "gauge", "Open file descriptors, sockets among them.")
PROCESS_MAX_FDS = Metric("process_max_fds", "gauge", "How many there may be.")
PROCESS_START_SECONDS = Metric("process_start_time_seconds", "gauge", "When the process began, since the epoch.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def table() -> str:
    """All metrics as a table in Markdown."""
    lines = ["| metric | type | labels | meaning | Apache Kafka |", "|---|---|---|---|---|"]
    for each in METRICS:
        names = ", ".join(f"`{label}`" for label in each.labels)
        kafka = f"`{each.kafka}`".replace("|", "\\|") if each.kafka else ""
        lines.append(f"| `{each.name}` | {each.kind} | {names} | {each.help} | {kafka} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
