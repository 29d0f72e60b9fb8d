"""A snapshot as Prometheus' text. Pure but for what is asked of this process, and `find_free_bytes`. On any thread."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from pybroker.coordinator.group.model.state import GroupState
from pybroker.native.metrics import STAGES, Distribution
from pybroker.observability import process
from pybroker.observability.exposition import Exposition, HistogramRow, Metric, Rows, labels
from pybroker.observability.page_cache import PageCache
from pybroker.observability.threads import cpu_seconds_by_name
from pybroker.protocol.loader import apis
from pybroker.server.observe import catalogue as c
from pybroker.server.observe.snapshot import DirectoryView, Snapshot
from pybroker.storage.files.offset_checkpoint import TopicPartition

#: Buckets for times are powers of two, in microseconds: 16 us to 17 s.
_TIME_EDGES = [(power, 2**power * 1e-6) for power in range(4, 25)]
_MICROSECONDS = 1e-6
#: Less than 2**power appends are at most one fewer.
_APPEND_EDGES = [(power, float(2**power - 1)) for power in range(1, 13)]


def render(snapshot: Snapshot, page_cache: Mapping[Path, PageCache], free_bytes: Mapping[Path, int]) -> str:
    """All metrics of the catalogue that there are values for; `page_cache` and `free_bytes` are by log dir."""
    out = Exposition()
    _add_broker(out, snapshot)
    _add_clients(out, snapshot)
    _add_traffic(out, snapshot)
    _add_data_plane(out, snapshot)
    _add_durability(out, snapshot, page_cache, free_bytes)
    _add_partitions(out, snapshot)
    _add_cluster(out, snapshot)
    _add_replication(out, snapshot)
    _add_verification(out, snapshot)
    _add_groups(out, snapshot)
    _add_upkeep(out, snapshot)
    _add_process(out)
    return out.text


def _values(out: Exposition, values: Iterable[tuple[Metric, float]]) -> None:
    for metric, value in values:
        out.value(metric, value)


def _add_broker(out: Exposition, snapshot: Snapshot) -> None:
    out.add(c.INFO, [(labels(**snapshot.info), 1)])
    _values(out, [(c.READY, int(snapshot.is_serving)), (c.CONTROL_LOOP_SECONDS, round(snapshot.delay_s, 6))])
    out.add(c.LOG_LINES_LEFT_OUT, [(labels(level=level), count) for level, count in snapshot.left_out_lines.items()])
    if snapshot.turns is not None:
        longest_s, long_count = snapshot.turns
        _values(out, [(c.LONGEST_TURN_SECONDS, round(longest_s, 6)), (c.LONG_TURNS, long_count)])
    out.add(c.EVENTS, [(labels(kind=kind), count) for kind, count in snapshot.event_counts.items()])


def _add_clients(out: Exposition, snapshot: Snapshot) -> None:
    stats = snapshot.stats
    _values(
        out,
        [
            (c.CONNECTIONS, stats.connections),
            (c.CONNECTIONS_ACCEPTED, stats.connections_accepted),
            (c.CONNECTIONS_REFUSED, stats.connections_refused),
            (c.RECEIVED_BYTES, stats.bytes_in),
            (c.SENT_BYTES, stats.bytes_out),
            (c.INVALID_REQUESTS, stats.bad_requests),
            (c.SLOW_REQUESTS, stats.slow_requests),
            (c.WAITING_REQUESTS, stats.python_requests),
            (c.DELAYED_FETCHES, stats.delayed_fetches),
            (c.FETCH_SESSIONS, stats.fetch_sessions),
            (c.BUFFER_BYTES, stats.buffer_bytes),
            (c.BUFFER_BUDGET_BYTES, stats.buffer_budget_bytes),
            (c.THROTTLED_CONNECTIONS, stats.starved_connections),
            (c.THROTTLES, stats.throttled),
            (c.SLOW_CONNECTIONS_CLOSED, stats.slow_closed),
            (c.QUOTA_THROTTLES, stats.quota_throttled),
        ],
    )
    known = apis()
    rows = [
        _row(labels(api=known[key].name if key in known else str(key), stage=stage), each)
        for key, stages in snapshot.request_times.items()
        for stage, each in zip(STAGES, stages, strict=True)
    ]
    out.histogram(c.REQUEST_SECONDS, rows, _TIME_EDGES, _MICROSECONDS)


def _row(text: str, values: Distribution) -> HistogramRow:
    return text, values.count, values.sum, values.below


def _add_traffic(out: Exposition, snapshot: Snapshot) -> None:
    stats = snapshot.stats
    _values(
        out,
        [
            (c.PRODUCE_REQUESTS, stats.produce_requests),
            (c.FETCH_REQUESTS, stats.fetch_requests),
            (c.FAILED_PRODUCES, stats.failed_produces),
            (c.PRODUCED_BYTES, stats.appended_bytes),
            (c.PRODUCED_RECORDS, stats.appended_records),
            (c.PRODUCED_BATCHES, stats.appended_batches),
        ],
    )
    sums: dict[str, list[int]] = {}
    for (topic, _), state in snapshot.partitions.items():
        found = sums.setdefault(topic, [0, 0, 0])
        found[0] += state.appended_bytes
        found[1] += state.appended_records
        found[2] += state.fetched_bytes
    names = {topic: labels(topic=topic) for topic in sums}
    for index, metric in enumerate((c.TOPIC_BYTES_IN, c.TOPIC_RECORDS_IN, c.TOPIC_BYTES_OUT)):
        out.add(metric, [(names[topic], found[index]) for topic, found in sums.items()])


def _add_data_plane(out: Exposition, snapshot: Snapshot) -> None:
    stats, distributions = snapshot.stats, snapshot.distributions
    out.value(c.REACTOR_TURNS, stats.turns)
    out.histogram(c.REACTOR_TURN_SECONDS, [_row("", distributions.turn_us)], _TIME_EDGES, _MICROSECONDS)
    out.histogram(c.DOORBELL_SECONDS, [_row("", distributions.doorbell_us)], _TIME_EDGES, _MICROSECONDS)
    out.add(c.THREAD_CPU_SECONDS, [(labels(thread=name), value) for name, value in cpu_seconds_by_name().items()])
    _values(
        out,
        [
            (c.LOG_WRITES, stats.writes),
            (c.LOG_WRITTEN_BYTES, stats.written_bytes),
            (c.SEGMENT_ROLLS, stats.rolls),
        ],
    )
    syncs = [
        _row(labels(of="partition"), distributions.file_sync_us),
        _row(labels(of="disk"), distributions.shared_sync_us),
        _row(labels(of="filesystem"), distributions.filesystem_sync_us),
    ]
    out.histogram(c.FLUSH_SECONDS, syncs, _TIME_EDGES, _MICROSECONDS)
    out.histogram(c.GROUP_COMMIT_APPENDS, [_row("", distributions.commit_appends)], _APPEND_EDGES, 1.0)
    _values(
        out,
        [
            (c.COLD_READS, stats.cold_reads),
            (c.COLD_READ_BYTES, stats.cold_read_bytes),
            (c.COLD_DROPPED_BYTES, stats.cold_dropped_bytes),
            (c.EMPTY_FETCHES, stats.empty_fetches),
            (c.LARGE_BATCHES, stats.large_batches),
            (c.LARGE_BATCH_BYTES, stats.large_batch_bytes),
            (c.LARGE_BATCHES_NOW, stats.large_batches_now),
        ],
    )


def _add_durability(
    out: Exposition, snapshot: Snapshot, page_cache: Mapping[Path, PageCache], free_bytes: Mapping[Path, int]
) -> None:
    states = snapshot.partitions.values()
    _values(
        out,
        [
            (c.DEBT_BYTES, sum(each.exposed_bytes for each in states)),
            (c.DEBT_SECONDS, max((each.exposed_ms for each in states), default=0) / 1000),
            (c.RING_BUDGET_BYTES, snapshot.rings.budget_bytes),
            (c.RING_BYTES, snapshot.rings.used_bytes),
            (c.HOT_LOGS, snapshot.rings.taken_count),
        ],
    )
    directories = [(labels(directory=str(each.path)), each) for each in snapshot.directories]
    out.add(c.DIRECTORY_ONLINE, [(text, int(each.is_online)) for text, each in directories])
    out.add(c.DIRECTORY_BYTES, [(text, _size_bytes(snapshot, each)) for text, each in directories if each.is_online])
    free = [(text, free_bytes[each.path]) for text, each in directories if each.path in free_bytes]
    out.add(c.DIRECTORY_FREE_BYTES, free)
    online = [(text, each) for text, each in directories if each.is_online]
    out.add(c.DIRECTORY_RESERVE_BYTES, [(text, each.reserve_bytes) for text, each in online])
    out.add(c.DIRECTORY_BELOW_RESERVE, [(text, int(each.is_below_reserve)) for text, each in online])
    doubts = [
        (labels(directory=str(each.path), finding=each.flush_finding), int(each.is_flush_doubtful))
        for each in snapshot.directories
        if each.flush_finding is not None
    ]
    out.add(c.DIRECTORY_FLUSH_DOUBTFUL, doubts)
    cached = [
        (labels(directory=str(path), state=state), value)
        for path, found in page_cache.items()
        for state, value in zip(("cached", "dirty", "writeback"), found, strict=True)
    ]
    out.add(c.PAGE_CACHE_BYTES, cached)


def _size_bytes(snapshot: Snapshot, directory: DirectoryView) -> int:
    states = (snapshot.partitions.get(key) for key in directory.partitions)
    return sum(each.size_bytes for each in states if each is not None)


def find_free_bytes(directories: Iterable[Path]) -> dict[Path, int]:
    """The free bytes of the directories that can be asked. Blocks on their file systems."""
    found = {}
    for path in directories:
        with contextlib.suppress(OSError):
            volume = os.statvfs(path)
            found[path] = volume.f_bavail * volume.f_frsize
    return found


def _add_partitions(out: Exposition, snapshot: Snapshot) -> None:
    states = list(snapshot.partitions.values())
    rows = _partition_rows(tuple(snapshot.partitions))
    out.value(c.PARTITIONS, len(states))
    out.value(c.LOST_RECORDS, snapshot.lost_count)
    out.add_rows(c.LOG_START_OFFSET, rows, [each.log_start_offset for each in states])
    out.add_rows(c.LOG_END_OFFSET, rows, [each.log_end_offset for each in states])
    out.add_rows(c.HIGH_WATERMARK, rows, [each.high_watermark for each in states])
    out.add_rows(c.DURABLE_OFFSET, rows, [each.durable_offset for each in states])
    out.add_rows(c.PARTITION_BYTES, rows, [each.size_bytes for each in states])


@lru_cache(maxsize=1)
def _partition_rows(partitions: tuple[TopicPartition, ...]) -> Rows:
    return Rows([labels(topic=topic, partition=index) for topic, index in partitions])


def _add_cluster(out: Exposition, snapshot: Snapshot) -> None:
    cluster = snapshot.cluster
    if cluster is None:
        return
    _values(
        out,
        [
            (c.LEADERS, cluster.led_count),
            (c.UNDER_REPLICATED, cluster.under_replicated_count),
            (c.OFFLINE_REPLICAS, sum(key not in snapshot.partitions for key in cluster.assigned)),
            (c.ACTIVE_CONTROLLERS, int(snapshot.has_controller)),
            (c.FENCED, int(cluster.is_fenced)),
            (c.TOPICS, cluster.topic_count),
            (c.CLUSTER_PARTITIONS, cluster.partition_count),
            (c.OFFLINE_PARTITIONS, cluster.offline_count),
            (c.METADATA_END_OFFSET, snapshot.metadata_end_offset),
        ],
    )


def _add_replication(out: Exposition, snapshot: Snapshot) -> None:
    found = snapshot.replication
    if found is None:
        return
    _values(
        out,
        [
            (c.UNDER_MIN_ISR, found.under_min_isr_count),
            (c.ISR_EXPANSIONS, found.isr.expansion_count),
            (c.ISR_SHRINKAGES, found.isr.shrinkage_count),
            (c.ISR_FAILURES, found.isr.failure_count),
            (c.FOLLOWING, found.following_count),
            (c.MAX_LAG, found.max_lag),
            (c.REPLICATED_BYTES, found.fetchers.record_bytes),
            (c.FETCHER_CONNECTIONS, found.fetchers.connected),
            (c.FETCHER_FAILURES, found.fetchers.failures),
        ],
    )


def _add_verification(out: Exposition, snapshot: Snapshot) -> None:
    if snapshot.verification is not None:
        times_us, failure_count = snapshot.verification
        out.histogram(c.VERIFICATION_SECONDS, [_row("", times_us)], _TIME_EDGES, _MICROSECONDS)
        out.value(c.VERIFICATION_FAILURES, failure_count)


def _add_groups(out: Exposition, snapshot: Snapshot) -> None:
    groups, partitions = snapshot.groups, snapshot.partitions
    if groups is None:
        return
    out.add(c.GROUPS, [(labels(state=state.value), groups.group_counts[state]) for state in GroupState])
    out.value(c.GROUP_OFFSETS, groups.offset_count)
    out.value(c.GROUP_MEMBER_BYTES, groups.held_bytes)
    out.value(c.GROUP_MEMBER_LIMIT_BYTES, groups.limit_bytes)
    out.value(c.GROUP_MEMBERS_REFUSED, groups.refused_count)
    lags = [
        (labels(group=group, topic=topic, partition=index), max(state.high_watermark - offset, 0))
        for group, topic, index, offset in groups.offsets
        if (state := partitions.get((topic, index))) is not None
    ]
    out.add(c.GROUP_LAG, lags)


def _add_upkeep(out: Exposition, snapshot: Snapshot) -> None:
    cleaner, scrub = snapshot.cleaner, snapshot.scrub
    if cleaner is not None:
        _values(
            out,
            [
                (c.CLEANER_RUNNING, len(cleaner.running)),
                (c.CLEANED_LOGS, cleaner.cleaned_count),
                (c.CLEANER_READ_BYTES, cleaner.read_bytes),
                (c.CLEANER_WRITTEN_BYTES, cleaner.written_bytes),
                (c.CLEANER_DIRTIEST, max((each.dirty_ratio for each in cleaner.dirtiest), default=0.0)),
                (c.CLEANER_UNCLEANABLE, len(cleaner.uncleanable)),
            ],
        )
    if scrub is not None:
        _values(out, [(c.SCRUB_CHECKED_BYTES, scrub.checked_bytes), (c.SCRUB_FINDINGS, scrub.finding_count)])


def _add_process(out: Exposition) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _values(
        out,
        [
            (c.PROCESS_CPU_SECONDS, round(used.ru_utime + used.ru_stime, 6)),
            (c.PROCESS_RESIDENT_BYTES, process.resident_bytes()),
            (c.PROCESS_OPEN_FDS, process.open_file_count()),
            (c.PROCESS_MAX_FDS, process.open_file_limit()),
            (c.PROCESS_START_SECONDS, round(time.time() - process.age_seconds(), 2)),
        ],
    )
