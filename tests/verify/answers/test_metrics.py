"""Metrics of a broker with 2,000 partitions: quick to scrape, as Prometheus wants them, and not felt by producers.

The figures are times as a scraper and the load generator see them; both share this machine with the broker.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.peer import run_pbload
from pybroker.perf.generator import find_generator
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

TOPICS, PARTITIONS = 20, 100
SCRAPES = 21
SCRAPE_LIMIT_S = 0.050
#: Medians over pairs of runs, one without and one with a scrape every second.
PAIRS, SECONDS, RATE = 5, 4.0, 2000
P99_LIMIT = 1.25


@pytest.fixture(scope="module")
def pbload() -> Path:
    return find_generator()


@pytest.fixture(scope="module")
def watched(pbload: Path) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker with 2,000 partitions, and where it tells metrics."""
    port = free_port()
    with BrokerProcess(overrides={"pybroker.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(f"t{index}", PARTITIONS, 1) for index in range(TOPICS)]).values():
            made.result(60)
        load(pbload, broker, 1.0)
        yield broker, f"http://127.0.0.1:{port}/metrics"


def load(pbload: Path, broker: BrokerProcess, seconds: float) -> float:
    """Produce 1 KiB batches at a fixed rate; the p99 in µs."""
    arguments = ["produce", "--batch-bytes", "1024", "--rate", str(RATE), "--seconds", str(seconds), "--topic", "t0"]
    found = run_pbload([str(pbload), *arguments, "--port", str(broker.port)], broker.cpu_seconds)
    assert not found.load["errors"], found.load
    return found.latency_us("p99")


def scrape(url: str) -> tuple[float, str]:
    """Seconds and the text."""
    begun = time.monotonic()
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    return time.monotonic() - begun, text


def test_a_scrape_of_2000_partitions_takes_50_ms(watched: tuple[BrokerProcess, str]) -> None:
    _, url = watched
    text = scrape(url)[1]
    assert sum(line.startswith("pybroker_partition_size_bytes{") for line in text.splitlines()) == TOPICS * PARTITIONS
    taken = sorted(scrape(url)[0] for _ in range(SCRAPES))
    print(
        f"{len(text.splitlines())} lines: median {taken[SCRAPES // 2] * 1e3:.1f} ms, largest {taken[-1] * 1e3:.1f} ms"
    )
    assert statistics.median(taken) <= SCRAPE_LIMIT_S


def test_promtool_finds_nothing_to_say(watched: tuple[BrokerProcess, str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    text = scrape(watched[1])[1]
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_producers_do_not_feel_a_scrape(pbload: Path, watched: tuple[BrokerProcess, str]) -> None:
    broker, url = watched
    quiet, scraped = [], []
    for _ in range(PAIRS):
        quiet.append(load(pbload, broker, SECONDS))
        over = threading.Event()

        def scrape_regularly(over: threading.Event = over) -> None:
            while not over.wait(1.0):
                scrape(url)

        scraper = threading.Thread(target=scrape_regularly)
        scraper.start()
        scraped.append(load(pbload, broker, SECONDS))
        over.set()
        scraper.join()
    before, after = statistics.median(quiet), statistics.median(scraped)
    print(f"p99 of produce: {before:.0f} µs without, {after:.0f} µs with a scrape each second")
    assert after <= before * P99_LIMIT
