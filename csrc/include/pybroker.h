/*
 * The boundary between Python, which decides, and C, which moves bytes. Python's declarations are made from this file
 * and from pybroker_tools.h, which serves tools that have no broker.
 *
 * Handles are opaque and live until the call named here ends them. Functions return 0, a positive Kafka error code or
 * -errno unless they say otherwise; those that take a pb_failure fill it with words for a person. Pointers given in are
 * used only during the call; pointers given out say how long they live. Unless marked "blocking" a call never waits for
 * a disk or for a reactor and may be made on the asyncio thread; blocking calls belong on a worker thread. All calls
 * are thread safe unless they end the handle they are given.
 */
#ifndef PYBROKER_H
#define PYBROKER_H

#include <stddef.h>
#include <stdint.h>

/* Raised with every change of either file; compared at import. */
#define PB_ABI_VERSION 12

#define PB_UUID_BYTES 16
#define PB_FAILURE_BYTES 512

typedef struct pb_broker pb_broker;
typedef struct pb_partition pb_partition;

uint32_t pb_abi_version(void);

/* ---- CRC32C and codecs, for Python's own small logs -------------------------------------------------------------- */

uint32_t pb_native_crc32c(uint32_t crc, const uint8_t *data, size_t length);
const char *pb_native_crc32c_name(void);
/* Decompress a batch's records (codec: Kafka's attribute bits 1..4). Returns the length, or -errno: -E2BIG over
 * capacity, -EINVAL corrupt. */
int64_t pb_native_decompress(int32_t codec, const uint8_t *data, size_t length, uint8_t *out, size_t capacity);

/* ---- broker ------------------------------------------------------------------------------------------------------ */

/* Words for a person about a failed call. Owner: the caller. */
typedef struct pb_native_failure {
    int32_t code;
    char text[512];
} pb_native_failure;

/* Everything a broker is started with. Sizes in bytes. */
typedef struct pb_broker_options {
    const char *backend; /* "auto", "io_uring" or "epoll" */
    int32_t node_id;
    int32_t reactor_count;       /* >= 1 */
    int32_t spin_us;             /* busy wait before sleeping; 0 = never */
    int64_t buffer_budget_bytes; /* receive buffers over all connections; above it producers are held back */
    int32_t max_request_bytes;   /* socket.request.max.bytes */
    int32_t max_connections;     /* pb_broker_limit_connections changes it */
    int64_t connections_max_idle_ms;
    int32_t fetch_session_slots; /* max.incremental.fetch.session.cache.slots */
    int32_t fetch_max_bytes;     /* fetch.max.bytes */
    int64_t history_cache_bytes; /* of memory, for what consumers that read history had brought in */
    int64_t slow_request_ms;     /* a request that takes so long is told of; 0 = none */
} pb_broker_options;

/* Open: loops, pools, background thread; nothing runs yet. */
int32_t pb_broker_open(const pb_broker_options *options, pb_broker **out, pb_native_failure *failure);
/* Start the reactors. */
int32_t pb_broker_start(pb_broker *broker, pb_native_failure *failure);
/* Take no more connections and requests: what is under way is answered, then the clients are told the end. Called once,
 * before pb_broker_stop. From here on that function waits up to five seconds for answers that are due, and then up to a
 * second for clients to go. */
void pb_broker_end_requests(pb_broker *broker);
/* Stop accepting, close all connections, end the threads. Blocking. Open partitions stay usable until closed. */
void pb_broker_stop(pb_broker *broker);
/* Free. All partitions must be closed. */
void pb_broker_close(pb_broker *broker);
/* How many connections may be open (max.connections); one more is refused. At once, any thread; those that are open
 * stay.
 */
void pb_broker_limit_connections(pb_broker *broker, int32_t max_connections);
/* Shares out `limit` file descriptors. `kept` are for other uses than logs and connections. In the rest, logs and
 * connections each leave the other `reserve`, so kept + 2 * reserve is at most the limit. One more is refused. 0: no
 * bound. Process-wide, at once, any thread. */
void pb_process_limit_descriptors(int32_t limit, int32_t kept, int32_t reserve);
/* The limit as it was told, 0 before, and how many logs may be open within it. Any thread. */
int32_t pb_process_descriptor_limit(void);
int32_t pb_process_log_descriptors(void);
/* "io_uring" or "epoll". Lives as long as the broker. */
const char *pb_broker_backend(const pb_broker *broker);
/* 0 when this process may use the backend, else why not, -errno and in words. Any thread, also without a broker. */
int32_t pb_native_backend_check(const char *backend, pb_native_failure *failure);

/* An API that Python serves (Produce and Fetch are served in C and are part of the list too, so that versions are
 * checked). */
typedef struct pb_api_range {
    int16_t api_key;
    int16_t min_version;
    int16_t max_version;
} pb_api_range;
/* Before pb_broker_start. A request outside these ranges closes its connection; ApiVersions always reaches Python. */
int32_t pb_broker_serve_apis(pb_broker *broker, const pb_api_range *ranges, int32_t count);

/* Listen. host "" = every address; port 0 = any. The name is what requests carry. */
int32_t pb_broker_listen(pb_broker *broker, const char *name, const char *host, int32_t port, int32_t *bound_port,
                         pb_native_failure *failure);

/* ---- events: C to Python ----------------------------------------------------------------------------------------- */

enum pb_event_kind {
    PB_EVENT_REQUEST = 1,   /* a request for Python: answer with pb_request_reply or pb_request_close, once */
    PB_EVENT_APPENDED = 2,  /* a pb_partition_append finished: ticket, offset, error */
    PB_EVENT_NOTICE = 3,    /* something to log: text, error = pb_notice_kind; released with pb_notice_release */
    PB_EVENT_OFFLINE = 4,   /* a partition's log failed: ticket = the partition's tag, error, offset = pb_offline */
    PB_EVENT_CAUGHT_UP = 5, /* see pb_partition_lead_replicated: ticket = the partition's tag, offset = replica id */
    PB_EVENT_FOLLOWER = 6,  /* of a partition that follows: ticket = its tag, error = pb_follower_news, offset */
    PB_EVENT_VERIFY = 7,    /* a Produce begins transactions in partitions: answer with pb_request_verified, once */
};

enum pb_notice_kind {
    PB_NOTICE_TROUBLE = 0,
    PB_NOTICE_SLOW_REQUEST = 1, /* at most one in 100 ms by each reactor; the counter has them all */
    PB_NOTICE_ROLL = 2,
    PB_NOTICE_THROTTLE = 3, /* at most one in 10 s */
};

/* The operation that failed. A failed write: appends are refused until pb_partition_repair. A failed read is told once,
 * until pb_partition_check_files. A failed sync: what it was for may be lost, is never acknowledged, and only opening
 * the log again helps. So it is with a change of files that failed half way: -EAGAIN where the disk is not at fault. */
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
    uint32_t repeated; /* NOTICE: how many like it were folded into this one */
} pb_event;

/* Readable while events wait. One reader. */
int32_t pb_broker_event_fd(const pb_broker *broker);
/* Take up to `capacity` events; the count. Clears the eventfd when it empties the queue. */
int32_t pb_broker_take_events(pb_broker *broker, pb_event *out, int32_t capacity);
/* Body and client id of a request have been copied: the memory in which they came is others' again. */
void pb_request_taken(pb_broker *broker, uint64_t request);
/* More of an answer's body (copied), which pb_request_reply ends. 0 or -errno: then the request can only be closed. */
int32_t pb_request_reply_part(pb_broker *broker, uint64_t request, const uint8_t *bytes, size_t length);
/* Answer a request: `body` (copied) follows the response header, which C writes. The request is gone afterwards. */
int32_t pb_request_reply(pb_broker *broker, uint64_t request, const uint8_t *body, size_t length);
/* When the request is answered, nothing is taken from its connection for so long: its answer says that the client has
 * to wait (KIP-219). Before the reply. */
void pb_request_mute(pb_broker *broker, uint64_t request, int32_t ms);
/* Close the request's connection instead of answering. */
void pb_request_close(pb_broker *broker, uint64_t request);
/* The peer's address in digits into `out` (46 bytes suffice). Before the reply. */
int32_t pb_request_client_host(pb_broker *broker, uint64_t request, char *out, size_t capacity);
void pb_notice_release(uint64_t notice);

/* A partition whose transaction coordinator is to be asked whether it is part of a transaction (KIP-890). */
typedef struct pb_verified_partition {
    const char *topic;
    int32_t partition;
    int32_t reserved;
} pb_verified_partition;
/* The verdicts after a VERIFY event, errors[i] of partition i: 0, it may be appended to, or the Kafka code that its
 * producer is told. The Produce goes on; until then it waits, with the later requests of its connection. */
void pb_request_verified(pb_broker *broker, uint64_t request, const int16_t *errors, int32_t count);

/* ---- partitions -------------------------------------------------------------------------------------------------- */

/* The promise of an acknowledgement, and of being readable. NONE and INTERVAL: it is written. ACKS: it is durable;
 * syncs are begun as soon as something is written, and take all that has gathered. INTERVAL is for the caller, who
 * calls pb_partition_sync. */
enum pb_durability { PB_DURABILITY_NONE = 0, PB_DURABILITY_INTERVAL = 1, PB_DURABILITY_ACKS = 2 };

/* May clients produce transactional batches? */
enum pb_transactional {
    PB_TRANSACTIONAL_REFUSED = 0,  /* no: there is nobody who could vouch for them */
    PB_TRANSACTIONAL_TRUSTED = 1,  /* yes, without anybody who vouches for them */
    PB_TRANSACTIONAL_VERIFIED = 2, /* after a VERIFY event for the first one of each transaction */
};

/* Settings of one partition's log and of what may be appended. Replaced whole by pb_partition_configure: with ACKS from
 * then on the high watermark waits for the durable end, and never moves back; without it, who waits for a sync is
 * answered. */
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
    int64_t reserve_bytes; /* blocks that are taken ahead of need leave so much of the disk free */
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
    int32_t leader_throttled;               /* this broker is one of leader.replication.throttled.replicas, */
    int32_t follower_throttled;             /* of follower.replication.throttled.replicas */
    int32_t max_decompressed_message_bytes; /* of one record of a compressed batch; 0: no limit */
    int32_t reserved;
} pb_partition_config;

/* The arguments of pb_partition_open. */
typedef struct pb_partition_options {
    const char *topic;
    const uint8_t *topic_id; /* PB_UUID_BYTES */
    int32_t partition;
    int32_t leader_epoch;     /* in which the partition is about to be led here, for a new log's checkpoint; -1: none */
    const char *directory;    /* <log dir>/<topic>-<partition>; made when missing */
    int32_t clean;            /* the log dir was shut down cleanly */
    int64_t recovery_point;   /* 0 unknown */
    int64_t log_start_offset; /* -1 unknown */
    int64_t high_watermark;   /* at first, as far as the log goes; -1: where the log ends */
    int64_t gap_offset; /* below it the cleaner may have taken the end of a segment away. Matters where offsets are
                           missing between two segments above it and above the recovery point. Those records were never
                           synced, and the log ends there. -1 means unknown: a compacted log goes on behind them */
    uint64_t tag;       /* comes back in events */
    pb_partition_config config;
} pb_partition_options;

/* The findings and actions of opening. */
typedef struct pb_partition_recovery {
    int64_t scanned_bytes;
    int64_t truncated_bytes;
    int32_t segment_count;
    int32_t unsound_index_count;   /* segments whose index files were missing or wrong; they were built again */
    int64_t unsound_index_segment; /* base offset of the first */
    int64_t old_magic_offset;      /* first batch older than magic 2; -1 none */
    int64_t gap_offset;            /* all gaps between segments that the log has now lie below it */
    /* The largest id of the producers that the log remembers; -1 none. Ids from 2^62 on do not count: no controller
     * comes so far, and a client that made one up must not take the others along. */
    int64_t largest_producer_id;
    /* Damage below the recovery point. It stays where it is, and reads of its offsets are answered CORRUPT_MESSAGE.
     * Position and offsets are the first one's, but for the end. */
    int64_t hole_segment; /* base offset */
    int64_t hole_position;
    int64_t hole_offset;
    int64_t hole_end_offset;
    /* The log was cut at a bad batch, and not because an append was torn: what lay behind is kept in files named
     * <base offset>.log.damaged-<position>. */
    int64_t cut_segment;
    int64_t cut_position;
    int64_t cut_offset;
    int64_t cut_end_offset; /* behind the last intact batch in those files */
    int64_t kept_bytes;
    int64_t kept_batch_count; /* intact ones in them */
    int32_t kept_file_count;  /* 0: the log was not cut like this */
    int32_t hole_count;
} pb_partition_recovery;

/* Open and recover one log, not yet served. Blocking; many may run at once. */
int32_t pb_partition_open(pb_broker *broker, const pb_partition_options *options, pb_partition **out,
                          pb_partition_recovery *recovery, pb_native_failure *failure);
/* Serve it to clients as its leader / at a new leader epoch, as the only replica. */
int32_t pb_partition_lead(pb_partition *partition, int32_t leader_epoch);
/* Take it away from clients: requests for it are answered `error` (UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR,
 * ...) or, for 0, as unknown. Waits for its write in flight. Blocking. */
int32_t pb_partition_resign(pb_partition *partition, int32_t error);
/* See pb_partition_close. */
#define PB_CLOSE_UNFINISHED 2147483645
/* End the handle. After resign, whose error those are told who have found the partition before. clean: sync, write
 * indexes, epochs and a producer snapshot. PB_CLOSE_UNFINISHED: nothing that was written is lost, but the next opening
 * has to check the log; any other failure may have cost records. Blocking. */
int32_t pb_partition_close(pb_partition *partition, int32_t clean, pb_native_failure *failure);
/*
 * For a clean stop of many partitions: first settle all in a log dir, after resign. A partition whose settling fails is
 * closed unclean. Then call pb_broker_sync_log_dir. After its success, close with `clean`, which then syncs nothing. At
 * last call pb_broker_sync_log_dir again. After that second success all is as after pb_partition_close with `clean`.
 * A power cut before that leaves the state of any unclean stop. Blocking.
 */
int32_t pb_partition_settle(pb_partition *partition, pb_native_failure *failure);
/* Sync the file system of a log dir, of which partitions have been opened. Blocking. -ENOSYS: it would not tell, or
 * partitions of the dir lie elsewhere, or a sync of it has failed; `try_only`: only look whether that is so. */
int32_t pb_broker_sync_log_dir(pb_broker *broker, const char *log_dir, int32_t try_only);
/* Before a file is unlinked: give most of its blocks back, so slowly that others hardly notice; the name stays. Small
 * files are left alone. -EBUSY: somebody has it open. Blocking, up to a second for each GiB and more on slow disks. */
int32_t pb_broker_drain_file(pb_broker *broker, const char *path);
int32_t pb_partition_configure(pb_partition *partition, const pb_partition_config *config);
/* Whether less of the disk that these lie on is free than its reserve. Then Produce is answered KAFKA_STORAGE_ERROR,
 * but for internal topics; what followers and pb_partition_append append goes on. */
void pb_partitions_set_below_reserve(pb_partition *const *partitions, int32_t count, int32_t below);
/* After an OFFLINE event: cut the log to what was written whole, and accept appends again. Blocking. -EBUSY: other
 * upkeep of the log is under way. */
int32_t pb_partition_repair(pb_partition *partition, pb_native_failure *failure);

/* Ends and sizes, read together. */
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
    int64_t
        exposed_bytes;  /* a power cut now may cost these, of what was appended since open: not known to be durable */
    int64_t exposed_ms; /* the oldest of them has been written for this long */
    int64_t cut_offset; /* the least end it was cut to since it was opened or last cleaned; INT64_MAX: none */
    int64_t cut_count;  /* as long as it stays what it is, what was written does: no cut has begun or ended */
    int64_t cut_generation; /* another one after each cut, across restarts too; 0: it was never cut */
} pb_partition_state;
/* Fill out[i] for partitions[i]. */
void pb_partitions_state(pb_partition *const *partitions, int32_t count, pb_partition_state *out);

/* Append one whole batch made by Python (offsets are assigned here). Finishes with an APPENDED event carrying `ticket`,
 * when the high watermark has passed it, or with why it has not: NOT_ENOUGH_REPLICAS, what pb_partition_resign was
 * told, ... An error return means no event comes. `bytes` are copied. */
int32_t pb_partition_append(pb_partition *partition, const uint8_t *bytes, size_t length, uint64_t ticket);
/* Append a transaction marker (a control batch); else as pb_partition_append. The partition's producer state decides:
 * INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. `transaction_version`: what the coordinator goes by; from 2
 * on a marker that ends a transaction has an epoch above the one the transaction was written with (KIP-890, KIP-1228).
 */
int32_t pb_partition_append_marker(pb_partition *partition, const uint8_t *bytes, size_t length,
                                   int32_t transaction_version, uint64_t ticket);
/* Where pb_partition_read ends. */
enum pb_read_limit { PB_READ_TO_HIGH_WATERMARK = 0, PB_READ_TO_LOG_END = 1 };
/* Copy whole batches from `offset`, below `limit` (pb_read_limit). Returns bytes copied (0 when there are none), or
 * -code of Kafka - 100000, or -errno; -E2BIG: the first one is larger than `capacity`. Blocking. */
int64_t pb_partition_read(pb_partition *partition, int64_t offset, int32_t limit, uint8_t *out, size_t capacity);

/* An offset with its timestamp and leader epoch; offset -1 when there is none. */
typedef struct pb_partition_position {
    int64_t offset;
    int64_t timestamp_ms;
    int32_t leader_epoch;
    int32_t reserved;
} pb_partition_position;
enum pb_isolation { PB_READ_UNCOMMITTED = 0, PB_READ_COMMITTED = 1 };
/* ListOffsets: first record at or after a timestamp; -1 latest, -2 earliest, -3 max timestamp (KIP-734). Blocking for
 * timestamps >= 0 and -3. */
int32_t pb_partition_list_offset(pb_partition *partition, int64_t timestamp_ms, int32_t isolation,
                                 pb_partition_position *out);
/* OffsetForLeaderEpoch: largest epoch <= leader_epoch, and its end offset; -1, -1 unknown. */
int32_t pb_partition_epoch_end(pb_partition *partition, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset);

/* Sync what is written; durable_offset moves (the recovery point). Blocking. */
int32_t pb_partition_sync(pb_partition *partition, pb_native_failure *failure);
/* Sync it, and all that is derived from it, so that an unclean stop costs no reading of what lies below. Blocking. */
int32_t pb_partition_mark(pb_partition *partition, pb_native_failure *failure);
/* Background upkeep: index buffers, epochs, producer expiry, snapshots, unlinking files deleted before
 * `purge_before_ms`. Blocking. */
int32_t pb_partition_upkeep(pb_partition *partition, int64_t now_ms, int64_t purge_before_ms,
                            pb_native_failure *failure);
/* One segment, for retention. */
typedef struct pb_partition_segment {
    int64_t base_offset;
    int64_t end_offset;
    int64_t size_bytes;
    int64_t largest_timestamp_ms;
    int64_t modified_ms;
    int64_t file_bytes; /* so many of them are in its file and stay as they are, unless the log is cut */
    int64_t generation; /* another one when the cleaner has put another file in its place */
} pb_partition_segment;
/* Oldest first; the last is the active one. Returns how many there are; fills at most `capacity`. */
int32_t pb_partition_segments(pb_partition *partition, pb_partition_segment *out, int32_t capacity);
/* Move the log start offset up to `offset` (<= high watermark, else OFFSET_OUT_OF_RANGE) and take whole segments below
 * it off the log. Blocking. */
int32_t pb_partition_delete_before(pb_partition *partition, int64_t offset, int32_t *deleted_segments,
                                   pb_native_failure *failure);
/* Start a new segment. Blocking. */
int32_t pb_partition_roll(pb_partition *partition, pb_native_failure *failure);
/* Cut the log so that `offset` is its end (not while it is served). Blocking. */
int32_t pb_partition_truncate(pb_partition *partition, int64_t offset, pb_native_failure *failure);

/* ---- partitions that fail or move: abi/moving.c ---- */

/* Answer clients that ask for this partition with `error`: it is assigned to this broker, but its log cannot be used.
 * Takes the place of the open partition of that name, which may then be resigned and closed; pb_partition_lead of
 * another takes its place. The handle is good for nothing but pb_partition_close, which ends the refusal. -EEXIST: the
 * name belongs to another topic id. */
int32_t pb_partition_refuse(pb_broker *broker, const char *topic, const uint8_t *topic_id, int32_t partition,
                            int32_t error, pb_partition **out);
/* Are all files there, as long as they should be? -ESTALE names the one that something else has removed or changed. One
 * that was cut is no failure: readers are told of what is missing, and if it is the active segment's, another segment
 * is begun. Upkeep looks too. Blocking. */
int32_t pb_partition_check_files(pb_partition *partition, pb_native_failure *failure);
/* Hold writes, so that the log's files can be copied: appends are taken and wait, reads go on, sync moves nothing that
 * matters. -EBUSY: maintenance is under way, again later. Every success needs one pb_partition_unhold. Blocking. */
int32_t pb_partition_hold(pb_partition *partition, pb_native_failure *failure);
/* While held: go on in `directory`, which has equal copies of all files, synced, and made since the log had that
 * `cut_count`. From there pb_partition_go_back leads back to where it was, unless it is `for_good`; syncs, and acks
 * that wait for one, wait for pb_partition_unhold. -EBUSY: again later; -ESTALE: the log was cut since, or a copy is
 * not as long as the file; after any failure the log goes on where it was. Blocking. */
int32_t pb_partition_relocate(pb_partition *partition, const char *directory, int64_t cut_count, int32_t for_good,
                              pb_native_failure *failure);
/* While held, after a pb_partition_relocate that was not for good: as before it, whatever the disk says. */
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
/* A pass of the scrub over a partition: where it is, which is C's, and what its last step came to. */
typedef struct pb_partition_scrub_pass {
    int64_t segment_base; /* the cursor: zeroed, a pass begins */
    int64_t position;
    int64_t next_offset;
    int64_t last_index_offset;
    uint32_t entries[3];
    int32_t with_indexes;
    int32_t begun;
    int32_t opened;  /* 1, set before it begins: the pass reads what the active segment had when the log was opened */
    int32_t finding; /* pb_scrub_kind */
    int32_t known;   /* batches: it was known before */
    int32_t mended;  /* an index: it was built again */
    int32_t done;    /* nothing is left for the pass to read */
    int64_t read_bytes; /* by this step */
    int64_t found_segment;
    int64_t found_position; /* in the .log, or in the index's file */
    int64_t found_end_position;
    int64_t found_offset; /* batches: fetches of these offsets are answered CORRUPT_MESSAGE from now on */
    int64_t found_end_offset;
} pb_partition_scrub_pass;
/* Read about `max_bytes` again and check batches, and index entries of sealed segments; ends early at a finding.
 * Blocking, at idle I/O priority. -EIO: the disk cannot be read at one place; the next step goes on behind it. */
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

/* The replicas of a partition by node id, as its leader is told. This broker is one of the replicas, and in the ISR. */
typedef struct pb_partition_leadership {
    int32_t leader_epoch;
    int32_t partition_epoch;
    const int32_t *replicas;
    const int32_t *isr;     /* as the controller has it: min.insync.replicas counts these */
    const int32_t *joining; /* in sync as well, proposed to the controller, which has not answered yet (KIP-497) */
    int32_t replica_count;
    int32_t isr_count;
    int32_t joining_count;
} pb_partition_leadership;

/*
 * Serve it as leader of several replicas; also the same epoch with another ISR, or other replicas. The high watermark
 * is the offset that every replica of the ISR, joining ones included, has reached. It never goes back, and it stands
 * still while the ISR is smaller than min.insync.replicas (KIP-966). An append with acks=all ends below it.
 *
 * A CAUGHT_UP event tells of a follower outside the ISR that has this epoch's beginning, and that keeps up or has all
 * records below the high watermark. It comes at most once a second. For that second, or until the leadership is told
 * again, the high watermark waits for the follower.
 *
 * INELIGIBLE_REPLICA: one that is to join has not got all below the high watermark; nothing has changed, and the
 * high watermark waits as before. FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION: a later leader or partition epoch is
 * known. -EINVAL: this broker is missing, a replica named twice, or one in sync that is no replica. Blocking while it
 * follows: see pb_partition_unfollow.
 */
int32_t pb_partition_lead_replicated(pb_partition *partition, const pb_partition_leadership *leadership);

/* The leader's knowledge of a follower. */
typedef struct pb_partition_follower {
    int32_t replica_id;
    int32_t in_isr;           /* as the controller has it */
    int64_t log_end_offset;   /* -1: not known yet */
    int64_t log_start_offset; /* -1: not known yet */
    int64_t caught_up_ms;     /* so long ago it had all that there was then; 0: it has all; INT64_MAX: it never had */
    int64_t broker_epoch;     /* of its last fetch; -1: not known */
} pb_partition_follower;
/* How many there are: none without pb_partition_lead_replicated. Fills at most `capacity`. */
int32_t pb_partition_followers(pb_partition *partition, pb_partition_follower *out, int32_t capacity);

/* Where a broker stands. */
typedef struct pb_broker_rack {
    int32_t node_id;
    const char *rack;
} pb_broker_rack;
/* All brokers that serve and have a rack, this one included. From now on a consumer that names a rack is sent there by
 * the leaders of partitions elsewhere, if a replica there has what it asks for (KIP-392). None: nobody is sent. */
int32_t pb_broker_set_racks(pb_broker *broker, const pb_broker_rack *racks, int32_t count);

#define PB_QUOTA_SAMPLES 1000 /* at most */
/* The limits on a client's produce and fetch; 0 = no bound. `…_shared`: as one with all clients that share a quota. */
typedef struct pb_client_quota {
    const char *client_id;
    int32_t client_id_length;
    double produce_bytes_per_second;
    double fetch_bytes_per_second;
    int32_t produce_shared;
    int32_t fetch_shared;
} pb_client_quota;
/* The quotas of clients by their ids, a client without one as one with an empty one, and of all others. From now on;
 * who is over its quota is told so, and nothing is taken from its connection for as long (KIP-13, KIP-219). Rates are
 * taken over `window_count` samples of `sample_ms`; -EINVAL where there is no such window. None, and no bound for
 * others: nobody is held back. */
int32_t pb_broker_set_client_quotas(pb_broker *broker, const pb_client_quota *quotas, int32_t count,
                                    const pb_client_quota *others, int32_t window_count, int64_t sample_ms);

/* Bounds the bytes per second that all followers out of sync, together, are sent of partitions that are
 * leader_throttled (leader.replication.throttled.rate); 0 = no bound. At once, any thread. */
void pb_broker_limit_leader_replication(pb_broker *broker, int64_t bytes_per_second);
/* Bounds the bytes per second that lagging followers here, together, fetch of partitions that are follower_throttled
 * (follower.replication.throttled.rate); as above. */
void pb_broker_limit_follower_replication(pb_broker *broker, int64_t bytes_per_second);

/* ---- following: abi/fetcher.c ------------------------------------------------------------------------------------ */

/* Fetches from one leader, on a connection of its own, what the partitions that follow with it lack. */
typedef struct pb_fetcher pb_fetcher;

/* A leader, and how to fetch from it. Sizes in bytes, times in ms; the names are Kafka's replica.fetch.* settings. */
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
    int32_t backoff_ms;         /* after an error, of the connection or of one partition */
    int32_t connect_timeout_ms; /* also of an answer, beside max_wait_ms */
    const char *client_id;      /* NULL: none */
} pb_fetcher_options;

/* It connects when the first partition follows. -ENOMEM, or -EINVAL with words. */
int32_t pb_fetcher_open(pb_broker *broker, const pb_fetcher_options *options, pb_fetcher **out,
                        pb_native_failure *failure);
/* End the handle at any time before pb_broker_close; what still follows with it stands still until it is told anew. */
void pb_fetcher_close(pb_fetcher *fetcher);
/* This broker was registered again: from the next connection on, which begins at once. */
int32_t pb_fetcher_set_epoch(pb_fetcher *fetcher, int64_t replica_epoch);

/* Follow the leader of that epoch, whatever it did before; also to go on after a repair. Clients are told
 * NOT_LEADER_OR_FOLLOWER. The log is cut where it differs from the leader's, and follows its start and high watermark.
 * Blocking: waits for the write in flight. */
int32_t pb_partition_follow(pb_partition *partition, pb_fetcher *fetcher, int32_t leader_epoch);
/* When it returns, nothing of the leader's is appended or cut any more; clients are told the same as before. Blocking.
 * pb_partition_resign, _close and _lead do it too, which makes them wait as well. */
void pb_partition_unfollow(pb_partition *partition);

/* PB_EVENT_FOLLOWER: ticket = the partition's tag, error = one of these, offset as said. */
enum pb_follower_news {
    PB_FOLLOWER_RESTARTED = 1, /* all it had lay outside of the leader's log: it begins anew at offset */
    PB_FOLLOWER_CUT = 2,       /* cut at offset, below its high watermark, as after an unclean leader election */
    PB_FOLLOWER_CORRUPT = 3,   /* the leader sent no sound batch for offset: it is asked again after backoff_ms */
    PB_FOLLOWER_STOPPED = 4,   /* its log cannot be cut or appended to: it stands still until told to follow again */
    /* Cut at offset, so that checkpoints, those of the cleaner too, may tell of more than is left. Before something
     * else takes its place they have to be written: it stands still until told to follow again. */
    PB_FOLLOWER_CHECKPOINT = 5,
};

/* How far a partition that follows has come. */
typedef struct pb_partition_following {
    int64_t lag;          /* records behind the leader's high watermark, as it said last; -1: it has not said */
    int32_t leader_epoch; /* -1: it does not follow */
    int32_t state;        /* pb_follow_state */
} pb_partition_following;
enum pb_follow_state {
    PB_FOLLOWER_IDLE = 0, /* it does not follow */
    PB_FOLLOWER_FETCHING = 1,
    PB_FOLLOWER_WAITING = 2,    /* for its writes, for a cut, or for backoff_ms to be over */
    PB_FOLLOWER_STANDSTILL = 3, /* after PB_FOLLOWER_STOPPED or an OFFLINE event */
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
    int64_t connections; /* made */
    int64_t failures;    /* of the connection, and answers that could not be used */
    int64_t partitions;  /* that follow with it now */
    int64_t connected;   /* 1, or 0 */
} pb_fetcher_stats;
void pb_fetcher_stats_read(pb_fetcher *fetcher, pb_fetcher_stats *out);

/* ---- heartbeats: abi/heartbeat.c -----------------------------------------------------------------------------------
 *
 * Python sends this broker's heartbeats to its controllers. While it is late, the data plane sends the last one again.
 */

typedef struct pb_heartbeat pb_heartbeat;

typedef struct pb_heartbeat_options {
    const char *address; /* of the active controller, in digits */
    int32_t port;
    int32_t interval_ms; /* between heartbeats: a quarter more is late */
    int32_t limit_ms;    /* after that long without Python nothing is sent any more */
} pb_heartbeat_options;

/* Keeps a connection there, and makes it again when it breaks. The broker has been started. -EINVAL, -ENOMEM. */
int32_t pb_heartbeat_open(pb_broker *broker, const pb_heartbeat_options *options, pb_heartbeat **out,
                          pb_native_failure *failure);
/* Python is alive, and this, a whole request with its length before it, is what to send when it is not. Copied; up to
 * 64 KiB. Answers are thrown away. */
int32_t pb_heartbeat_feed(pb_heartbeat *heartbeat, const uint8_t *frame, int32_t length);
/* How many were sent since open. */
int64_t pb_heartbeat_sent(pb_heartbeat *heartbeat);
/* At any time before pb_broker_close. */
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
