/*
 * The interface of the data plane in C for the control plane in Python. The build makes Python's declarations from this
 * file and from pybroker_tools.h, which is for tools without a broker.
 *
 * Handles are opaque. A handle lives until it is given to the function that ends it. A function returns 0, a positive
 * Kafka error code or -errno unless its comment says otherwise. A function with a pb_native_failure fills it with a
 * text for people. Arguments are used only during the call; comments say how long returned pointers are valid.
 *
 * Unless it is marked "Blocking", a call never waits for a disk or a reactor and may be made on the asyncio thread.
 * Make blocking calls on a worker thread. All calls are thread safe unless they end their handle.
 */
#ifndef PYBROKER_H
#define PYBROKER_H

#include <stddef.h>
#include <stdint.h>

/* Grows with every change of the interface in either file. Python compares it at import. */
#define PB_ABI_VERSION 12

#define PB_UUID_BYTES 16
#define PB_FAILURE_BYTES 512

typedef struct pb_broker pb_broker;
typedef struct pb_partition pb_partition;

uint32_t pb_abi_version(void);

/* ---- CRC32C and codecs, for Python's own small logs -------------------------------------------------------------- */

uint32_t pb_native_crc32c(uint32_t crc, const uint8_t *data, size_t length);
const char *pb_native_crc32c_name(void);
/* Decompress a batch's records (codec: Kafka's attribute bits 1..4). Returns the length, or -errno: -E2BIG when it is
 * more than `capacity`, -EINVAL when the data is corrupt. */
int64_t pb_native_decompress(int32_t codec, const uint8_t *data, size_t length, uint8_t *out, size_t capacity);

/* ---- broker ------------------------------------------------------------------------------------------------------ */

/* A text for people about a failed call. Owner: the caller. */
typedef struct pb_native_failure {
    int32_t code;
    char text[512];
} pb_native_failure;

/* The options that a broker starts with. Sizes in bytes. */
typedef struct pb_broker_options {
    const char *backend; /* "auto", "io_uring" or "epoll" */
    int32_t node_id;
    int32_t reactor_count;       /* >= 1 */
    int32_t spin_us;             /* busy wait before sleeping; 0 = never */
    int64_t buffer_budget_bytes; /* of receive buffers of all connections; above it, connections wait to receive */
    int32_t max_request_bytes;   /* socket.request.max.bytes */
    int32_t max_connections;     /* pb_broker_limit_connections changes it */
    int64_t connections_max_idle_ms;
    int32_t fetch_session_slots; /* max.incremental.fetch.session.cache.slots */
    int32_t fetch_max_bytes;     /* fetch.max.bytes */
    int64_t history_cache_bytes; /* the most memory for old data that consumers read: pybroker.history.cache.bytes */
    int64_t slow_request_ms;     /* a request that takes this long or longer causes a NOTICE event; 0 = none does */
} pb_broker_options;

/* Make a broker: reactors, pools, background threads. Nothing runs yet. */
int32_t pb_broker_open(const pb_broker_options *options, pb_broker **out, pb_native_failure *failure);
/* Start the reactors. */
int32_t pb_broker_start(pb_broker *broker, pb_native_failure *failure);
/* Take no more connections and requests. Requests under way are answered; then the broker closes its side of each
 * connection. Call it once, before pb_broker_stop. Counted from this call, pb_broker_stop waits up to five seconds for
 * answers that are due, and then up to a second for clients to close their connections. */
void pb_broker_end_requests(pb_broker *broker);
/* Stop accepting, close all connections, end the threads. Blocking. Open partitions stay usable until closed. */
void pb_broker_stop(pb_broker *broker);
/* Free the broker. All partitions must be closed. */
void pb_broker_close(pb_broker *broker);
/* Set how many connections may be open (max.connections); further ones are refused. Takes effect at once; open
 * connections stay. Any thread. */
void pb_broker_limit_connections(pb_broker *broker, int32_t max_connections);
/* Share the process's `limit` file descriptors between logs and connections. `kept` descriptors are for other uses.
 * Logs leave `reserve` of the rest to connections, and connections leave `reserve` to logs. So kept + 2 * reserve is at
 * most the limit. A log or connection beyond its share is refused. limit 0: no bound. Takes effect at once. Any
 * thread. */
void pb_process_limit_descriptors(int32_t limit, int32_t kept, int32_t reserve);
/* The limit that was set, or 0 before that; and how many logs may be open within it. Any thread. */
int32_t pb_process_descriptor_limit(void);
int32_t pb_process_log_descriptors(void);
/* "io_uring" or "epoll". Lives as long as the broker. */
const char *pb_broker_backend(const pb_broker *broker);
/* 0 when this process may use the backend; else -errno, with the reason in `failure`. Any thread, also without a
 * broker. */
int32_t pb_native_backend_check(const char *backend, pb_native_failure *failure);

/* An API that the broker serves, with its versions. */
typedef struct pb_api_range {
    int16_t api_key;
    int16_t min_version;
    int16_t max_version;
} pb_api_range;
/* Set the APIs that the broker serves, Produce and Fetch included. Call it before pb_broker_start. A request outside
 * these ranges closes its connection; only ApiVersions always reaches Python. */
int32_t pb_broker_serve_apis(pb_broker *broker, const pb_api_range *ranges, int32_t count);

/* Listen on an address. host "" = every address; port 0 = any free port, *bound_port says which. `name` is the
 * listener's name. */
int32_t pb_broker_listen(pb_broker *broker, const char *name, const char *host, int32_t port, int32_t *bound_port,
                         pb_native_failure *failure);

/* ---- events: C to Python ----------------------------------------------------------------------------------------- */

enum pb_event_kind {
    PB_EVENT_REQUEST = 1,   /* a request for Python: answer with pb_request_reply or pb_request_close, once */
    PB_EVENT_APPENDED = 2,  /* a pb_partition_append finished: handle = its ticket, offset, error */
    PB_EVENT_NOTICE = 3,    /* something to log: text, error = pb_notice_kind; released with pb_notice_release */
    PB_EVENT_OFFLINE = 4,   /* a partition's log failed: handle = the partition's tag, error, offset = pb_offline */
    PB_EVENT_CAUGHT_UP = 5, /* see pb_partition_lead_replicated: handle = the partition's tag, offset = replica id */
    PB_EVENT_FOLLOWER = 6,  /* of a partition that follows: handle = its tag, error = pb_follower_news, offset */
    PB_EVENT_VERIFY = 7,    /* a Produce begins transactions in partitions: answer with pb_request_verified, once */
};

enum pb_notice_kind {
    PB_NOTICE_TROUBLE = 0,
    PB_NOTICE_SLOW_REQUEST = 1, /* at most one in 100 ms from each reactor; pb_broker_stats counts all */
    PB_NOTICE_ROLL = 2,
    PB_NOTICE_THROTTLE = 3, /* at most one in 10 s */
};

/*
 * The operation that failed, in an OFFLINE event.
 * - WRITE: appends are refused until pb_partition_repair.
 * - READ: the event comes once, and again only after pb_partition_check_files.
 * - SYNC: the data to sync may be lost, so it is never acknowledged. The log works only after it is opened again. A
 *   change of files that failed half way is told as SYNC too, with -EAGAIN if the disk is not at fault.
 */
enum pb_offline { PB_OFFLINE_WRITE = 1, PB_OFFLINE_READ = 2, PB_OFFLINE_SYNC = 3 };

/* One event; 72 bytes, no padding inside, so that Python can unpack many at once with "<IiQqqQQIIhhiII". */
typedef struct pb_event {
    uint32_t kind;
    int32_t error;
    uint64_t handle;       /* REQUEST, VERIFY: request; NOTICE: notice; the others: ticket or tag */
    int64_t offset;        /* APPENDED: base offset; OFFLINE: pb_offline; CAUGHT_UP: replica id; VERIFY: producer id;
                              REQUEST: 1 when pb_request_taken is to follow */
    int64_t connection_id; /* REQUEST; NOTICE: the same number for all notices of one kind */
    uint64_t body; /* REQUEST: address of the body, valid until taken or answered; NOTICE: address of the text; VERIFY:
                      address of pb_verified_partition, valid until answered */
    uint64_t client_id;   /* REQUEST: address of the client id; VERIFY: of the transactional id; NOTICE: of the address
                             of the client that it is about, valid as long as the text */
    uint32_t body_length; /* VERIFY: how many partitions */
    uint32_t client_id_length; /* UINT32_MAX: null */
    int16_t api_key;           /* VERIFY: the producer epoch */
    int16_t api_version;
    int32_t correlation_id;
    uint32_t listener; /* REQUEST: index of the listener, in order of pb_broker_listen */
    uint32_t repeated; /* NOTICE: how many like notices were folded into this one */
} pb_event;

/* An eventfd that is readable while events wait. Only one thread may read events. */
int32_t pb_broker_event_fd(const pb_broker *broker);
/* Take up to `capacity` events; returns how many. Clears the eventfd when the queue is empty then. */
int32_t pb_broker_take_events(pb_broker *broker, pb_event *out, int32_t capacity);
/* Python has copied the body and the client id of a request: their receive buffer may be used for other requests. */
void pb_request_taken(pb_broker *broker, uint64_t request);
/* Add a part to the body of an answer; pb_request_reply adds the last part. `bytes` are copied. 0, or -errno; after an
 * error the request can only be closed. */
int32_t pb_request_reply_part(pb_broker *broker, uint64_t request, const uint8_t *bytes, size_t length);
/* Answer a request: `body` (copied) follows the response header, which C writes. The request is gone afterwards. */
int32_t pb_request_reply(pb_broker *broker, uint64_t request, const uint8_t *body, size_t length);
/* Read no request from this request's connection for `ms` after its answer, which tells the client to wait that long
 * (KIP-219). Call it before the reply. */
void pb_request_mute(pb_broker *broker, uint64_t request, int32_t ms);
/* Close the request's connection instead of answering. */
void pb_request_close(pb_broker *broker, uint64_t request);
/* Write the client's numeric address to `out` (46 bytes suffice). Call it before the reply. */
int32_t pb_request_client_host(pb_broker *broker, uint64_t request, char *out, size_t capacity);
void pb_notice_release(uint64_t notice);

/* A partition of a VERIFY event: Python asks the transaction coordinator whether it is part of the transaction
 * (KIP-890). */
typedef struct pb_verified_partition {
    const char *topic;
    int32_t partition;
    int32_t reserved;
} pb_verified_partition;
/* Answer a VERIFY event. errors[i] is 0 if partition i may be appended to, else the Kafka error code for the producer.
 * The Produce goes on then. Until this call, the Produce and the later requests of its connection wait. */
void pb_request_verified(pb_broker *broker, uint64_t request, const int16_t *errors, int32_t count);

/* ---- partitions -------------------------------------------------------------------------------------------------- */

/* When a record is acknowledged and readable. NONE and INTERVAL: when it is written to the log. ACKS: when it is
 * durable; a sync begins as soon as something is written, and covers all records that have gathered. INTERVAL differs
 * from NONE only for the caller, who calls pb_partition_sync. */
enum pb_durability { PB_DURABILITY_NONE = 0, PB_DURABILITY_INTERVAL = 1, PB_DURABILITY_ACKS = 2 };

/* May clients produce transactional batches? */
enum pb_transactional {
    PB_TRANSACTIONAL_REFUSED = 0,  /* no: there is no transaction coordinator to verify them */
    PB_TRANSACTIONAL_TRUSTED = 1,  /* yes, without verification */
    PB_TRANSACTIONAL_VERIFIED = 2, /* after a VERIFY event for the first one of each transaction */
};

/* Settings of one partition's log and of what may be appended. pb_partition_configure replaces all of them. When it
 * sets ACKS, the high watermark waits for the durable end from then on; it does not move back. When it ends ACKS,
 * requests that wait for a sync are answered. */
typedef struct pb_partition_config {
    int64_t segment_bytes;
    int64_t segment_ms;
    int64_t segment_jitter_ms;
    int64_t segment_index_bytes;
    int64_t index_interval_bytes;
    int64_t producer_expiration_ms;
    int64_t flush_messages;
    int64_t flush_ms;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    int64_t reserve_bytes; /* disk blocks allocated ahead of need leave this much of the disk free */
    int32_t max_message_bytes;
    int32_t min_insync_replicas;
    int32_t timestamp_type;    /* 0 CreateTime, 1 LogAppendTime */
    int32_t compression;       /* Kafka's codec id; -1 = producer's */
    int32_t compression_level; /* the codec's; INT32_MIN = its default */
    int32_t compact;           /* cleanup.policy has compact */
    int32_t preallocate;
    int32_t internal;                       /* clients may not produce to it */
    int32_t transactional;                  /* pb_transactional */
    int32_t durability;                     /* pb_durability */
    int32_t leader_throttled;               /* this broker is one of leader.replication.throttled.replicas */
    int32_t follower_throttled;             /* this broker is one of follower.replication.throttled.replicas */
    int32_t max_decompressed_message_bytes; /* of one record of a compressed batch; 0: no limit */
    int32_t reserved;
} pb_partition_config;

/* The arguments of pb_partition_open. */
typedef struct pb_partition_options {
    const char *topic;
    const uint8_t *topic_id; /* PB_UUID_BYTES */
    int32_t partition;
    int32_t leader_epoch;     /* at which this broker is about to lead, for the checkpoint of a new log; -1: none */
    const char *directory;    /* <log dir>/<topic>-<partition>; made when missing */
    int32_t clean;            /* the log dir was shut down cleanly */
    int64_t recovery_point;   /* 0: unknown */
    int64_t log_start_offset; /* -1: unknown */
    int64_t high_watermark;   /* the initial one, lowered to the log's end; -1: the log's end */
    int64_t gap_offset; /* The cleaner may have made gaps (missing offsets) between segments below this offset. A gap
                           above it and above the recovery point comes from a power cut. Recovery ends the log there.
                           -1: unknown. Recovery then takes any gap of a compacted log for the cleaner's */
    uint64_t tag;       /* identifies the partition in events */
    pb_partition_config config;
} pb_partition_options;

/* The result of opening a log: its findings and its changes. */
typedef struct pb_partition_recovery {
    int64_t scanned_bytes;
    int64_t truncated_bytes;
    int32_t segment_count;
    int32_t unsound_index_count;   /* segments whose index files were missing or wrong; they were built again */
    int64_t unsound_index_segment; /* base offset of the first */
    int64_t old_magic_offset;      /* first batch older than magic 2; -1 none */
    int64_t gap_offset;            /* all gaps between the log's segments lie below it */
    /* The largest producer id in the log's producer state; -1: none. Ids from 2^62 on do not count: no controller gives
     * out such an id, so a client has made it up. */
    int64_t largest_producer_id;
    /* Damage below the recovery point, called a hole. The damaged bytes stay, and reads of their offsets are answered
     * CORRUPT_MESSAGE. The fields describe the first hole, but hole_end_offset is the end of the last one. */
    int64_t hole_segment; /* base offset */
    int64_t hole_position;
    int64_t hole_offset;
    int64_t hole_end_offset;
    /* The log was cut at a bad batch that no torn append explains. The bytes from there on are kept in files named
     * <base offset>.log.damaged-<position>. */
    int64_t cut_segment;
    int64_t cut_position;
    int64_t cut_offset;
    int64_t cut_end_offset; /* behind the last intact batch in those files */
    int64_t kept_bytes;
    int64_t kept_batch_count; /* intact batches in these files */
    int32_t kept_file_count;  /* 0: the log was not cut like this */
    int32_t hole_count;
} pb_partition_recovery;

/* Open and recover one log, not yet served. Blocking; many may run at once. */
int32_t pb_partition_open(pb_broker *broker, const pb_partition_options *options, pb_partition **out,
                          pb_partition_recovery *recovery, pb_native_failure *failure);
/* Lead the partition, at a new leader epoch if it is led already, as its only replica. */
int32_t pb_partition_lead(pb_partition *partition, int32_t leader_epoch);
/* Stop serving the partition: requests for it are answered `error` (UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR,
 * ...), or with 0 as an unknown partition. Waits for its write in flight. Blocking. */
int32_t pb_partition_resign(pb_partition *partition, int32_t error);
/* See pb_partition_close. */
#define PB_CLOSE_UNFINISHED 2147483645
/* Close the log and end the handle. Call pb_partition_resign before; requests that found the partition before that are
 * answered its error. `clean`: sync the log, and write indexes, epochs and a producer snapshot. PB_CLOSE_UNFINISHED:
 * no written record is lost, but the next opening has to check the log. Any other failure may have cost records.
 * Blocking. */
int32_t pb_partition_close(pb_partition *partition, int32_t clean, pb_native_failure *failure);
/*
 * For a clean stop of many partitions with few syncs. Blocking. For all partitions of a log dir, in this order:
 * 1. Resign each partition, then settle it. Close a partition unclean if settling it fails.
 * 2. Call pb_broker_sync_log_dir.
 * 3. If that succeeds, close each partition with `clean`, which then syncs nothing.
 * 4. Call pb_broker_sync_log_dir again. When it succeeds, the stop is clean.
 * A power cut before the end leaves the state of an unclean stop.
 */
int32_t pb_partition_settle(pb_partition *partition, pb_native_failure *failure);
/* Sync the file system of a log dir of which partitions have been opened. -ENOSYS: the kernel would not report a
 * failure, or some partitions of the dir are on another file system, or a sync of it has failed before. `try_only`:
 * only check for -ENOSYS. Blocking. */
int32_t pb_broker_sync_log_dir(pb_broker *broker, const char *log_dir, int32_t try_only);
/* Truncate a file that is about to be unlinked, in steps so slow that other I/O hardly notices. Small files are left
 * alone. -EBUSY: somebody has the file open. Blocking, up to a second for each GiB and more on slow disks. */
int32_t pb_broker_drain_file(pb_broker *broker, const char *path);
int32_t pb_partition_configure(pb_partition *partition, const pb_partition_config *config);
/* Tell these partitions whether their disk has less free space than its reserve. While it has, Produce to topics that
 * are not internal is answered KAFKA_STORAGE_ERROR. Followers and pb_partition_append still append. */
void pb_partitions_set_below_reserve(pb_partition *const *partitions, int32_t count, int32_t below);
/* After an OFFLINE event: cut the log behind the last batch that was written whole, and accept appends again. -EBUSY:
 * other maintenance of the log is under way. Blocking. */
int32_t pb_partition_repair(pb_partition *partition, pb_native_failure *failure);

/* Offsets and sizes of a partition, all of the same moment. */
typedef struct pb_partition_state {
    int64_t log_start_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t log_end_offset;
    int64_t durable_offset;
    int64_t recovery_point; /* where recovery may begin: for recovery-point-offset-checkpoint */
    int64_t size_bytes;
    int32_t leader_epoch;
    int32_t reserved;
    int64_t appended_bytes; /* since open */
    int64_t appended_records;
    int64_t fetched_bytes;
    int64_t exposed_bytes; /* appended since open and not known to be durable: a power cut may cost them */
    int64_t exposed_ms;    /* how long ago the oldest of these bytes was written */
    int64_t cut_offset;    /* the lowest end the log was cut to since it was opened or last cleaned; INT64_MAX: none */
    int64_t cut_count;     /* changes when a cut begins or ends: while it is the same, written bytes stay as they are */
    int64_t cut_generation; /* changes with each cut, across restarts too; 0: the log was never cut */
} pb_partition_state;
/* Fill out[i] for partitions[i]. */
void pb_partitions_state(pb_partition *const *partitions, int32_t count, pb_partition_state *out);

/* Append one whole batch that Python has made; this call assigns its offsets. An APPENDED event with `ticket` comes
 * when the high watermark has passed the batch, or with an error: NOT_ENOUGH_REPLICAS, the error of
 * pb_partition_resign, ... After an error return no event comes. `bytes` are copied. */
int32_t pb_partition_append(pb_partition *partition, const uint8_t *bytes, size_t length, uint64_t ticket);
/* Append a transaction marker (a control batch), like pb_partition_append. Returns INVALID_PRODUCER_EPOCH or
 * TRANSACTION_COORDINATOR_FENCED when the producer state refuses the marker. `transaction_version` is the
 * coordinator's: from version 2 on, the epoch of a marker is above the epoch of its transaction's batches (KIP-890,
 * KIP-1228). */
int32_t pb_partition_append_marker(pb_partition *partition, const uint8_t *bytes, size_t length,
                                   int32_t transaction_version, uint64_t ticket);
/* Where pb_partition_read ends. */
enum pb_read_limit { PB_READ_TO_HIGH_WATERMARK = 0, PB_READ_TO_LOG_END = 1 };
/* Copy whole batches from `offset` on, up to `limit` (pb_read_limit). Returns how many bytes were copied; 0: there are
 * no batches. Or returns -errno, or -100000 minus Kafka's error code. -E2BIG: the first batch is larger than
 * `capacity`. Blocking. */
int64_t pb_partition_read(pb_partition *partition, int64_t offset, int32_t limit, uint8_t *out, size_t capacity);

/* An offset with its timestamp and leader epoch; offset -1 when there is none. */
typedef struct pb_partition_position {
    int64_t offset;
    int64_t timestamp_ms;
    int32_t leader_epoch;
    int32_t reserved;
} pb_partition_position;
enum pb_isolation { PB_READ_UNCOMMITTED = 0, PB_READ_COMMITTED = 1 };
/* For ListOffsets: the first record at or after `timestamp_ms`. Special values: -1 the latest offset, -2 the earliest
 * offset, -3 the record with the largest timestamp (KIP-734). Blocking for timestamps >= 0 and -3. */
int32_t pb_partition_list_offset(pb_partition *partition, int64_t timestamp_ms, int32_t isolation,
                                 pb_partition_position *out);
/* For OffsetForLeaderEpoch: *epoch is the log's largest epoch that is not above `leader_epoch`, and *end_offset the
 * offset where that epoch ends. If all epochs of the log are above it, they are `leader_epoch` and the offset where the
 * log's first epoch begins. If all are below it, or there is none, both are -1. */
int32_t pb_partition_epoch_end(pb_partition *partition, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset);

/* Sync all written batches, and move durable_offset (the recovery point). Blocking. */
int32_t pb_partition_sync(pb_partition *partition, pb_native_failure *failure);
/* Sync all written batches, indexes, epochs and a producer snapshot, and set a mark: after an unclean stop recovery
 * reads only the batches behind the mark (log/recover/mark.h). Blocking. */
int32_t pb_partition_mark(pb_partition *partition, pb_native_failure *failure);
/* Background upkeep: write buffered index entries, epochs and producer snapshots to their files, expire producers, and
 * unlink the files of segments that were deleted before `purge_before_ms`. Blocking. */
int32_t pb_partition_upkeep(pb_partition *partition, int64_t now_ms, int64_t purge_before_ms,
                            pb_native_failure *failure);
/* One segment, for retention. */
typedef struct pb_partition_segment {
    int64_t base_offset;
    int64_t end_offset;
    int64_t size_bytes;
    int64_t largest_timestamp_ms;
    int64_t modified_ms;
    int64_t file_bytes; /* how many of `size_bytes` are in the file and stay as they are, unless the log is cut */
    int64_t generation; /* changes when the cleaner replaces the segment's file */
} pb_partition_segment;
/* List the segments, the oldest first; the last is the active one. Returns how many there are; fills at most
 * `capacity` entries. */
int32_t pb_partition_segments(pb_partition *partition, pb_partition_segment *out, int32_t capacity);
/* Move the log start offset up to `offset` (<= high watermark, else OFFSET_OUT_OF_RANGE) and take whole segments below
 * it off the log. Blocking. */
int32_t pb_partition_delete_before(pb_partition *partition, int64_t offset, int32_t *deleted_segments,
                                   pb_native_failure *failure);
/* Start a new segment. Blocking. */
int32_t pb_partition_roll(pb_partition *partition, pb_native_failure *failure);
/* Truncate the log so that `offset` is its end. The partition must not be served meanwhile. Blocking. */
int32_t pb_partition_truncate(pb_partition *partition, int64_t offset, pb_native_failure *failure);

/* ---- partitions that fail or move: abi/moving.c ---- */

/* Answer requests for a partition with `error`: it is assigned to this broker, but its log cannot be used. The refusal
 * replaces the open partition of that name, which may then be resigned and closed. A later pb_partition_lead of that
 * partition replaces the refusal. The handle *out may only be given to pb_partition_close, which ends the refusal.
 * -EEXIST: the name belongs to another topic id. */
int32_t pb_partition_refuse(pb_broker *broker, const char *topic, const uint8_t *topic_id, int32_t partition,
                            int32_t error, pb_partition **out);
/* Check that each file of the log is there and as long as it should be. -ESTALE: another program has removed or changed
 * a file; `failure` names it. A segment's file that was cut shorter is no failure: reads of the missing part are
 * answered CORRUPT_MESSAGE, and if it is the active segment, a new segment begins. Upkeep checks this too. Blocking. */
int32_t pb_partition_check_files(pb_partition *partition, pb_native_failure *failure);
/* Hold writes, so that the log's files can be copied. Appends are accepted but wait for their write. Reads and syncs go
 * on. -EBUSY: maintenance is under way; try again later. Each success needs one pb_partition_unhold. Blocking. */
int32_t pb_partition_hold(pb_partition *partition, pb_native_failure *failure);
/* Move a held log to `directory`, which has synced copies of all of its files. The copies must have been made while the
 * log had this `cut_count`. Unless the move is `for_good`, pb_partition_go_back can undo it. Syncs, and acks that wait
 * for one, wait for pb_partition_unhold. -EBUSY: try again later. -ESTALE: the log was cut since, or a copy is shorter
 * or longer than its file. After any failure the log stays in its old directory. Blocking. */
int32_t pb_partition_relocate(pb_partition *partition, const char *directory, int64_t cut_count, int32_t for_good,
                              pb_native_failure *failure);
/* Undo a pb_partition_relocate that was not for good, while the log is held. It cannot fail. */
void pb_partition_go_back(pb_partition *partition);
void pb_partition_unhold(pb_partition *partition);

/* The finding of one step of the scrub. */
enum pb_scrub_kind {
    PB_SCRUB_KIND_NOTHING = 0,
    PB_SCRUB_KIND_BATCHES = 1,
    PB_SCRUB_KIND_OFFSET_INDEX = 2,
    PB_SCRUB_KIND_TIME_INDEX = 3,
    PB_SCRUB_KIND_TRANSACTION_INDEX = 4,
};
/* A pass of the scrub over a partition: its cursor, which only C changes, and the result of its last step. */
typedef struct pb_partition_scrub_pass {
    int64_t segment_base; /* the cursor: zeroed, a pass begins */
    int64_t position;
    int64_t next_offset;
    int64_t last_index_offset;
    uint32_t entries[3];
    int32_t with_indexes;
    int32_t begun;
    int32_t opened;  /* set to 1 before the pass begins: it reads the bytes that the active segment had at the open */
    int32_t finding; /* pb_scrub_kind */
    int32_t known;   /* batches: the damage was known before */
    int32_t mended;  /* an index: it was rebuilt */
    int32_t done;    /* nothing is left for the pass to read */
    int64_t read_bytes; /* by this step */
    int64_t found_segment;
    int64_t found_position; /* in the .log, or in the index's file */
    int64_t found_end_position;
    int64_t found_offset; /* batches: fetches of these offsets are answered CORRUPT_MESSAGE from now on */
    int64_t found_end_offset;
} pb_partition_scrub_pass;
/* Make one step of the pass: read about `max_bytes` from the disk, and check batches and the index entries of sealed
 * segments. The step ends early at a finding. -EIO: the disk cannot read one place; the next step goes on behind it.
 * Blocking, at idle I/O priority. */
int32_t pb_partition_scrub(pb_partition *partition, int64_t max_bytes, pb_partition_scrub_pass *pass,
                           pb_native_failure *failure);

/* One producer's state, for DescribeProducers. */
typedef struct pb_partition_producer {
    int64_t producer_id;
    int64_t last_timestamp_ms;
    int64_t transaction_start_offset;
    int32_t last_sequence;
    int32_t coordinator_epoch;
    int32_t producer_epoch;
    int32_t reserved;
} pb_partition_producer;
int32_t pb_partition_producers(pb_partition *partition, pb_partition_producer *out, int32_t capacity);

/* ---- replication: abi/replication.c ------------------------------------------------------------------------------ */

/* The replicas of a partition by node id, for its leader. This broker is one of the replicas, and in the ISR. */
typedef struct pb_partition_leadership {
    int32_t leader_epoch;
    int32_t partition_epoch;
    const int32_t *replicas;
    const int32_t *isr;     /* the controller's ISR: min.insync.replicas counts these */
    const int32_t *joining; /* proposed to the controller as additions to the ISR, not answered yet (KIP-497) */
    int32_t replica_count;
    int32_t isr_count;
    int32_t joining_count;
} pb_partition_leadership;

/*
 * Lead a partition with several replicas. Call it again at the same epoch when the ISR or the replicas change. The high
 * watermark is the offset that every replica of the ISR, joining ones included, has reached. It never moves back, and
 * it stands still while the ISR is smaller than min.insync.replicas (KIP-966). An append with acks=all is answered when
 * the high watermark has passed it.
 *
 * A CAUGHT_UP event tells of a follower outside the ISR that could join it. The follower has reached the beginning of
 * this epoch, and it keeps up or has all records below the high watermark. The event comes at most once a second. For
 * that second, or until the next call of this function, the high watermark waits for the follower.
 *
 * INELIGIBLE_REPLICA: a joining replica lacks records below the high watermark. Nothing has changed then.
 * FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION: a later leader or partition epoch is known. -EINVAL: this broker is
 * missing, or a replica is named twice, or the ISR has a node that is no replica. Blocking if the partition follows:
 * see pb_partition_unfollow.
 */
int32_t pb_partition_lead_replicated(pb_partition *partition, const pb_partition_leadership *leadership);

/* The leader's knowledge of a follower. */
typedef struct pb_partition_follower {
    int32_t replica_id;
    int32_t in_isr;           /* in the controller's ISR */
    int64_t log_end_offset;   /* -1: not known yet */
    int64_t log_start_offset; /* -1: not known yet */
    int64_t caught_up_ms;     /* how long ago it had all records of that time; 0: it has all now; INT64_MAX: never */
    int64_t broker_epoch;     /* of its last fetch; -1: not known */
} pb_partition_follower;
/* List the followers. Returns how many there are, 0 without pb_partition_lead_replicated; fills at most `capacity`
 * entries. */
int32_t pb_partition_followers(pb_partition *partition, pb_partition_follower *out, int32_t capacity);

/* The rack of a broker. */
typedef struct pb_broker_rack {
    int32_t node_id;
    const char *rack;
} pb_broker_rack;
/* Set the racks of all brokers that serve and have a rack, this one included. From now on, when a consumer names
 * another rack, a leader here sends it to a replica in that rack that has the requested offset (KIP-392). With count 0
 * no consumer is sent elsewhere. */
int32_t pb_broker_set_racks(pb_broker *broker, const pb_broker_rack *racks, int32_t count);

#define PB_QUOTA_SAMPLES 1000 /* at most */
/* The bounds on a client's produce and fetch; 0 = no bound. `…_shared`: the bound is for all clients that share this
 * quota together. */
typedef struct pb_client_quota {
    const char *client_id;
    int32_t client_id_length;
    double produce_bytes_per_second;
    double fetch_bytes_per_second;
    int32_t produce_shared;
    int32_t fetch_shared;
} pb_client_quota;
/* Set the quotas of clients (KIP-13) from now on: `quotas` of single client ids, and `others` of all other clients. A
 * client without a client id counts as one with an empty id. The answer to a client over its quota says how long to
 * wait, and no request is read from its connection for that time (KIP-219). Rates are measured over `window_count`
 * samples of `sample_ms`; -EINVAL: not a valid window. With count 0 and no bound in `others` there are no quotas. */
int32_t pb_broker_set_client_quotas(pb_broker *broker, const pb_client_quota *quotas, int32_t count,
                                    const pb_client_quota *others, int32_t window_count, int64_t sample_ms);

/* Bound the bytes per second that this broker sends to all followers outside the ISR together, for partitions that are
 * leader_throttled (leader.replication.throttled.rate). 0 = no bound. Takes effect at once. Any thread. */
void pb_broker_limit_leader_replication(pb_broker *broker, int64_t bytes_per_second);
/* Bound the bytes per second that this broker's lagging followers together fetch, for partitions that are
 * follower_throttled (follower.replication.throttled.rate). 0 = no bound. Takes effect at once. Any thread. */
void pb_broker_limit_follower_replication(pb_broker *broker, int64_t bytes_per_second);

/* ---- following: abi/fetcher.c ------------------------------------------------------------------------------------ */

/* A fetcher: fetches from one leader's broker, on a connection of its own, for the partitions that follow with it. */
typedef struct pb_fetcher pb_fetcher;

/* The leader's broker, and how to fetch from it. Sizes in bytes, times in ms. The names are Kafka's replica.fetch.*
 * settings. */
typedef struct pb_fetcher_options {
    int32_t leader_id;
    const char *host; /* by name or in digits; looked up anew for each connection */
    int32_t port;
    int32_t replica_id;    /* this broker */
    int64_t replica_epoch; /* its broker epoch; -1 unknown */
    int32_t fetch_version; /* 17 or 18 */
    int32_t max_wait_ms;
    int32_t min_bytes;
    int32_t max_bytes;
    int32_t partition_max_bytes;
    int32_t backoff_ms;         /* the wait after an error of the connection or of one partition */
    int32_t connect_timeout_ms; /* an answer may take max_wait_ms and this */
    const char *client_id;      /* NULL: none */
} pb_fetcher_options;

/* Make a fetcher. It connects when the first partition follows with it. -ENOMEM, or -EINVAL with a text. */
int32_t pb_fetcher_open(pb_broker *broker, const pb_fetcher_options *options, pb_fetcher **out,
                        pb_native_failure *failure);
/* End the handle at any time before pb_broker_close. Partitions that still follow with it stand still until
 * pb_partition_follow is called for them again. */
void pb_fetcher_close(pb_fetcher *fetcher);
/* This broker was registered again: use its new epoch. The fetcher connects again at once to do so. */
int32_t pb_fetcher_set_epoch(pb_fetcher *fetcher, int64_t replica_epoch);

/* Follow the leader of `leader_epoch`, whatever the partition did before; also call it to go on after a repair. Clients
 * are answered NOT_LEADER_OR_FOLLOWER. The log is cut where it differs from the leader's log, and takes over the
 * leader's log start offset and high watermark. Blocking: waits for the write in flight. */
int32_t pb_partition_follow(pb_partition *partition, pb_fetcher *fetcher, int32_t leader_epoch);
/* Stop following: when it returns, the fetcher appends and cuts nothing any more. Clients get the same answer as
 * before. pb_partition_resign, _close and _lead stop following too, and then wait as long. Blocking. */
void pb_partition_unfollow(pb_partition *partition);

/* The `error` of a FOLLOWER event; `handle` is the partition's tag. "Stands still" means that the partition fetches
 * nothing until pb_partition_follow is called again. */
enum pb_follower_news {
    PB_FOLLOWER_RESTARTED = 1, /* its log lay outside of the leader's log: it begins anew at `offset` */
    PB_FOLLOWER_CUT = 2,       /* its log was cut at `offset`, below its high watermark: an unclean leader election */
    PB_FOLLOWER_CORRUPT = 3,   /* the leader sent no valid batch for `offset`: it is asked again after backoff_ms */
    PB_FOLLOWER_STOPPED = 4,   /* its log cannot be cut or appended to: it stands still */
    /* Its log was cut at `offset`, so checkpoints, the cleaner's too, may name offsets above the log's end. They have
     * to be written before other records take the place of the cut ones: it stands still. */
    PB_FOLLOWER_CHECKPOINT = 5,
};

/* How far a partition that follows has come. */
typedef struct pb_partition_following {
    int64_t lag;          /* records behind the leader's last known high watermark; -1: it is not known yet */
    int32_t leader_epoch; /* -1: it does not follow */
    int32_t state;        /* pb_follow_state */
} pb_partition_following;
enum pb_follow_state {
    PB_FOLLOWER_IDLE = 0, /* it does not follow */
    PB_FOLLOWER_FETCHING = 1,
    PB_FOLLOWER_WAITING = 2,    /* waits for its writes, for a cut, or for the end of backoff_ms */
    PB_FOLLOWER_STANDSTILL = 3, /* stands still after PB_FOLLOWER_STOPPED or an OFFLINE event */
};
/* Fill out[i] for partitions[i]. */
void pb_partitions_following(pb_partition *const *partitions, int32_t count, pb_partition_following *out);

/* Counters since open. */
typedef struct pb_fetcher_stats {
    int64_t requests;
    int64_t bytes;        /* received */
    int64_t record_bytes; /* appended, as the two that follow */
    int64_t batches;
    int64_t records;
    int64_t connections; /* that were made */
    int64_t failures;    /* of the connection, and invalid answers */
    int64_t partitions;  /* that follow with the fetcher now */
    int64_t connected;   /* 1, or 0 */
} pb_fetcher_stats;
void pb_fetcher_stats_read(pb_fetcher *fetcher, pb_fetcher_stats *out);

/* ---- heartbeats: abi/heartbeat.c -----------------------------------------------------------------------------------
 *
 * Python sends this broker's heartbeats to its controllers. When Python is late, the data plane sends the last
 * heartbeat again.
 */

typedef struct pb_heartbeat pb_heartbeat;

typedef struct pb_heartbeat_options {
    const char *address; /* of the active controller, in digits */
    int32_t port;
    int32_t interval_ms; /* between heartbeats; Python is late when it takes a quarter more */
    int32_t limit_ms;    /* after this time without Python no more heartbeats are sent */
} pb_heartbeat_options;

/* Open a connection to the controller, and open it again whenever it breaks. Call it after pb_broker_start. -EINVAL,
 * -ENOMEM. */
int32_t pb_heartbeat_open(pb_broker *broker, const pb_heartbeat_options *options, pb_heartbeat **out,
                          pb_native_failure *failure);
/* Say that Python is alive, and set the request to send when Python is late: a whole frame with its length field, of up
 * to 64 KiB. `frame` is copied. Answers to it are ignored. */
int32_t pb_heartbeat_feed(pb_heartbeat *heartbeat, const uint8_t *frame, int32_t length);
/* How many heartbeats the data plane has sent since open. */
int64_t pb_heartbeat_sent(pb_heartbeat *heartbeat);
/* End the handle, at any time before pb_broker_close. */
void pb_heartbeat_close(pb_heartbeat *heartbeat);

/* ---- cleaning ---------------------------------------------------------------------------------------------------- */

/* One pass of the log cleaner over a partition. Sizes in bytes. */
typedef struct pb_clean_options {
    int64_t first_dirty_offset;  /* from cleaner-offset-checkpoint; raised to the log start offset */
    int64_t upper_offset;        /* nothing at or above is touched; lowered to the last stable offset and the active
                                    segment */
    int64_t now_ms;              /* of the wall: delete horizons are set and compared with it */
    int64_t delete_retention_ms; /* delete.retention.ms */
    int64_t map_bytes;           /* memory for keys, 24 bytes each (log.cleaner.dedupe.buffer.size / threads) */
    int64_t io_buffer_bytes;     /* log.cleaner.io.buffer.size / threads; at least 64 KiB, and 12 MiB to read ahead */
    int32_t load_factor_percent; /* log.cleaner.io.buffer.load.factor * 100; 1 to 100 */
    int32_t compression;         /* Kafka's codec id for batches that are rewritten; -1 = each batch keeps its own */
    int32_t compression_level;   /* of that codec; INT32_MIN = its default */
    int32_t reserved;
} pb_clean_options;

/* The result of a pass; meaningful as well when it was cancelled or failed: then end_offset is first_dirty_offset. */
typedef struct pb_clean_result {
    int64_t end_offset;     /* everything below is clean: the next pass's first dirty offset, for the checkpoint */
    int64_t map_read_bytes; /* while the map was built */
    int64_t map_read_records;
    int64_t map_entries; /* distinct keys in the dirty part */
    int64_t read_bytes;  /* while segments were rewritten */
    int64_t read_records;
    int64_t written_bytes;
    int64_t kept_records;
    int64_t invalid_records;  /* without a key: dropped */
    int64_t removed_bytes;    /* by which the log has become smaller */
    int64_t source_segments;  /* rewritten */
    int64_t cleaned_segments; /* that took their places */
    int64_t elapsed_ns;
    int32_t map_full; /* 1: not all of the dirty part fitted the map; another pass is worth while at once */
    int32_t reserved;
} pb_clean_result;

/*
 * Clean: of the records with one key below `upper_offset` keep the last one, with Apache Kafka's rules for tombstones,
 * transactions and producer state. Rewritten segments replace the old ones in a way that a crash at any moment neither
 * loses nor doubles a record; the old files are unlinked by pb_partition_upkeep. Up to upper_offset, where a segment
 * begins, the log is durable by then, and this offset kept for the next open as its gap offset. Appends, reads and
 * retention go on meanwhile. Blocking, for minutes: on a thread of its own, which runs at idle I/O priority inside the
 * call. One pass per partition at a time: -EBUSY. 0 with the result, also when there was nothing to do. -ECANCELED
 * after pb_partition_clean_cancel; -EAGAIN when retention or a truncation took segments away meanwhile: nothing is
 * wrong, try again later. -ENOSPC: the disk is full; the log is as it was but for groups of segments that are finished.
 * CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_FOR_MESSAGE_FORMAT, -EFBIG: this log cannot be cleaned as it is (damaged
 * or old batch, named in `failure` with its file and position).
 */
int32_t pb_partition_clean(pb_partition *partition, const pb_clean_options *options, pb_clean_result *result,
                           pb_native_failure *failure);
/* Let the pass under way end soon with -ECANCELED; without one it does nothing. */
void pb_partition_clean_cancel(pb_partition *partition);

enum pb_clean_phase { PB_CLEAN_IDLE = 0, PB_CLEAN_MAPPING = 1, PB_CLEAN_REWRITING = 2 };
/* How far the pass under way has come. */
typedef struct pb_clean_progress {
    int64_t phase;      /* pb_clean_phase */
    int64_t done_bytes; /* of this phase's input */
    int64_t total_bytes;
    int64_t map_entries;
} pb_clean_progress;
void pb_partition_clean_progress(pb_partition *partition, pb_clean_progress *out);

/* Bounds the bytes per second that all passes of a broker together read and write
 * (log.cleaner.io.max.bytes.per.second); 0 = no bound. Takes effect at once. */
void pb_broker_limit_cleaning(pb_broker *broker, int64_t bytes_per_second);

/* max.compaction.lag.ms counts from here: the smallest of the first batches' timestamps of the sealed segments that
 * overlap [from_offset, upper_offset), in ms; -1 when no batch has one. Blocking: a small read per segment. */
int32_t pb_partition_first_timestamp(pb_partition *partition, int64_t from_offset, int64_t upper_offset,
                                     int64_t *timestamp_ms, pb_native_failure *failure);

/* ---- tail rings: abi/rings.c ------------------------------------------------------------------------------------- */

/* How the logs of a broker use rings. Sizes in bytes. */
typedef struct pb_broker_rings {
    const char *directory;        /* on tmpfs, nobody else's; made when it is missing */
    const uint8_t *session_id;    /* PB_UUID_BYTES: another one for each run */
    int64_t budget_bytes;         /* for all rings */
    int64_t ring_bytes;           /* of each; a multiple of 4096 */
    int64_t hot_bytes_per_second; /* a log that is written this fast gets a ring, while there is one */
} pb_broker_rings;
/* Let logs have tail rings: those that are opened from now on, in the log dirs added. At most once. -EINVAL: the
 * directory is not on tmpfs. Blocking. */
int32_t pb_broker_use_rings(pb_broker *broker, const pb_broker_rings *rings, pb_native_failure *failure);
/* `path` is a log dir; what lies directly below it has directory.id `directory_id` (PB_UUID_BYTES). After use_rings. */
int32_t pb_broker_add_log_dir(pb_broker *broker, const char *path, const uint8_t *directory_id);
/* Rings now. */
typedef struct pb_broker_ring_stats {
    int64_t budget_bytes; /* 0: no rings are used */
    int64_t used_bytes;
    int32_t ring_count;
    int32_t taken_count; /* hot logs */
} pb_broker_ring_stats;
void pb_broker_ring_stats_read(pb_broker *broker, pb_broker_ring_stats *out);

/* Without a broker, while none has the log dir open: what an ended process has left. */

/* The facts that a ring's file tells about itself. */
typedef struct pb_ring_file {
    int64_t ring_bytes; /* the file begins with them: the byte at a position of the segment, at that modulo this */
    int64_t segment_base;
    int64_t start_position; /* in the segment's file below it */
    int64_t end_position;   /* in the ring below it */
    int32_t sealed;         /* 0: nothing is in it, and only session and boot id are true */
    int32_t partition;
    uint8_t directory_id[16];
    uint8_t topic_id[16];
    uint8_t boot_id[16]; /* of the machine when it was written */
    uint8_t session_id[16];
    char topic[256];
} pb_ring_file;
/* -ENODATA: it was never finished, and holds nothing. -EBADMSG: it is no ring, or a damaged one, and *out has what lies
 * where a ring says these things. -EPROTONOSUPPORT: it is not of this version. Blocking. */
int32_t pb_ring_file_read(const char *path, pb_ring_file *out, pb_native_failure *failure);
/* Bring what the ring at `path` holds into the log in `log_directory`, and sync it; *moved_bytes: how many its segment
 * had not got. `look`: change nothing. The ring's file stays as it is. -ESTALE: the log is not as the ring's writer
 * left it. Blocking. */
int32_t pb_ring_file_replay(const char *path, const char *log_directory, int32_t look, int64_t *moved_bytes,
                            pb_native_failure *failure);
/* PB_UUID_BYTES that change each time the machine starts. */
int32_t pb_machine_boot_id(uint8_t *out);

/* ---- metrics: abi/metrics.c -------------------------------------------------------------------------------------- */

/* Counters since start, summed over reactors, and what there is now. */
typedef struct pb_broker_stats {
    int64_t connections;
    int64_t connections_accepted;
    int64_t connections_refused;
    int64_t bytes_in;
    int64_t bytes_out;
    int64_t requests;
    int64_t produce_requests;
    int64_t fetch_requests;
    int64_t bad_requests;
    int64_t appended_batches; /* by clients, as the two that follow */
    int64_t appended_records;
    int64_t appended_bytes;
    int64_t failed_produces; /* partitions that a Produce was refused for */
    int64_t writes;          /* into logs: their files, or their tail rings */
    int64_t written_bytes;
    int64_t turns; /* of reactors */
    int64_t rolls; /* by what clients have appended */
    int64_t slow_requests;
    int64_t throttled;           /* how often a connection had to wait for buffer memory */
    int64_t quota_throttled;     /* how often a client had to wait because of its quota */
    int64_t starved_connections; /* that wait for buffer memory now */
    int64_t slow_closed;         /* connections closed because they held buffer memory that others waited for */
    int64_t buffer_bytes;        /* receive buffers held now */
    int64_t buffer_budget_bytes;
    int64_t delayed_fetches; /* waiting now */
    int64_t python_requests; /* waiting for Python now */
    int64_t fetch_sessions;
    int64_t cold_reads;         /* how often a fetch could not go on without a disk */
    int64_t cold_read_bytes;    /* of history, read into memory for that */
    int64_t cold_dropped_bytes; /* and dropped from it again */
    int64_t empty_fetches;      /* how often all that a fetch had found was gone before it was answered */
    int64_t large_batches;      /* that were validated off the reactors */
    int64_t large_batch_bytes;  /* what the accepted ones of them unpacked to */
    int64_t large_batches_now;  /* being validated, or waiting for it */
} pb_broker_stats;
void pb_broker_stats_read(pb_broker *broker, pb_broker_stats *out);

/* How values are distributed: below[i] of them are less than 2^i. */
typedef struct pb_distribution {
    int64_t count;
    int64_t sum;
    int64_t below[30];
} pb_distribution;

typedef struct pb_broker_distributions {
    pb_distribution turn_us;            /* turns of reactors, from the first thing heard to the end of the work */
    pb_distribution doorbell_us;        /* from the ringing for Python to Python's taking events */
    pb_distribution file_sync_us;       /* syncs of one partition */
    pb_distribution shared_sync_us;     /* of some whose writes share a flush of their disk */
    pb_distribution filesystem_sync_us; /* of many at once */
    pb_distribution commit_appends;     /* with durable acks: appends that one sync of a partition let end */
} pb_broker_distributions;
void pb_broker_distributions_read(pb_broker *broker, pb_broker_distributions *out);

/* The stages of a request, named as in Kafka's request metrics. */
enum pb_stage { PB_STAGE_QUEUE = 0, PB_STAGE_LOCAL = 1, PB_STAGE_REMOTE = 2, PB_STAGE_SEND = 3, PB_STAGE_TOTAL = 4 };
/* The times of the requests of one API, by pb_stage, in microseconds. */
typedef struct pb_request_times {
    int64_t api_key;
    pb_distribution stages[5];
} pb_request_times;
/* Those APIs that have been asked for, up to `capacity`; how many. */
int32_t pb_broker_request_times(pb_broker *broker, pb_request_times *out, int32_t capacity);

/* Let every reactor show that it turns, for at most `timeout_ms`. 0: the slowest took *latency_us. -ETIMEDOUT:
 * *stuck_reactor does not. -ESHUTDOWN: they do not run. One caller waits for the other. Blocking. */
int32_t pb_broker_ping(pb_broker *broker, int32_t timeout_ms, int64_t *latency_us, int32_t *stuck_reactor);

#endif
