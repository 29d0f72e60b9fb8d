"""Many real librdkafka producers at a fixed rate: one JSON line like pbload's.

Two worker processes share the producers; each paces its own by an absolute schedule and measures produce-to-delivery.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from array import array
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub does not re-export

TOPIC = "rdkafka"
RECORD_BYTES = 1024
WORKER_COUNT = 2


def _create_topic(bootstrap: str, partitions: int) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    config = {"retention.bytes": str(16 << 20), "segment.bytes": str(16 << 20)}
    for future in client.create_topics([NewTopic(TOPIC, partitions, 1, config=config)]).values():
        try:
            future.result(timeout=60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _work(
    bootstrap: str, producers_count: int, partitions: int, records_per_s: float, seconds: float
) -> dict[str, Any]:
    config = {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 4096, "log_level": 3}
    producers = [Producer(config) for _ in range(producers_count)]
    latencies_s = array("d")
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            latencies_s.append(message.latency() or 0.0)

    value = bytes(index * 31 & 0xFF for index in range(RECORD_BYTES))
    for index, producer in enumerate(producers):  # connect and learn the metadata before the clock starts
        producer.produce(TOPIC, value, partition=index % partitions, on_delivery=delivered)
    for producer in producers:
        producer.flush(60)
    del latencies_s[:]
    start, sent = time.monotonic(), 0
    while (now := time.monotonic()) < start + seconds:
        while sent < (now - start) * records_per_s:
            producers[sent % producers_count].produce(
                TOPIC, value, partition=sent * 7919 % partitions, on_delivery=delivered
            )
            sent += 1
        for producer in producers:
            producer.poll(0)
        time.sleep(0.002)
    for producer in producers:
        producer.flush(60)
    return {"latencies_s": latencies_s, "sent": sent, "elapsed_s": time.monotonic() - start, "failures": failures}


def main() -> int:
    """Run and print; the status is 1 when any record was not delivered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--producers", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--mb-per-s", type=float, default=4.0, help="over all producers")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    _create_topic(options.bootstrap, options.partitions)
    rate = options.mb_per_s * 1e6 / RECORD_BYTES / WORKER_COUNT
    count = max(1, options.producers // WORKER_COUNT)
    work = (options.bootstrap, count, options.partitions, rate, options.seconds)
    with multiprocessing.get_context("spawn").Pool(WORKER_COUNT) as pool:
        parts = pool.starmap(_work, [work] * WORKER_COUNT)
    latencies_us = sorted(value * 1e6 for part in parts for value in part["latencies_s"])
    failures = [failure for part in parts for failure in part["failures"]]
    lost = sum(part["sent"] for part in parts) - len(latencies_us)
    if failures or lost or not latencies_us:
        print(f"{lost} records were not delivered: {failures[:3]}", file=sys.stderr)
        return 1
    elapsed_s = max(part["elapsed_s"] for part in parts)
    payload_bytes = len(latencies_us) * RECORD_BYTES
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    latency_us = {name: latencies_us[int(q * (len(latencies_us) - 1))] for name, q in quantiles.items()}
    result = {"mode": "rdkafka", "connections": count * WORKER_COUNT, "elapsed_s": elapsed_s, "errors": {}}
    result |= {"requests": len(latencies_us), "requests_per_s": len(latencies_us) / elapsed_s}
    result |= {"payload_bytes": payload_bytes, "mb_per_s": payload_bytes / elapsed_s / 1e6}
    result["latency_us"] = {**latency_us, "max": latencies_us[-1]}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
