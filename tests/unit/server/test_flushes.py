"""A broker that promises durability says what speaks against it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_client import config_for, running

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from pybroker.profiles.facts import read_machine
from pybroker.profiles.measurement.at_start import judge_log_dir
from pybroker.server.daemon import ready_line
from pybroker.server.flushes import promises_durability

sys.path.insert(0, str(Path(__file__).parents[1] / "profiles"))

from recorded import changed, recorded
from trees import unpack


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_a_log_dir_in_memory_keeps_no_promise(in_memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run(durability: str) -> str:
        async with running(config_for(in_memory, pybroker_durability=durability)) as daemon:
            assert (daemon.logs.directories[0].flush is not None) == (durability != "none")
            return ready_line(daemon, 1)

    with caplog.at_level(logging.WARNING):
        assert " durability=none reactors=" in asyncio.run(run("none"))
        assert not caplog.messages
        assert " durability=acks flush=dropped " in asyncio.run(run("acks"))
    assert caplog.messages == [
        f"{in_memory}: what is acknowledged as durable may go with the power: tmpfs keeps files in memory: a loss of "
        "power takes all of them"
    ]


def test_flushes_are_tried_where_nothing_was_measured(tmp_path: Path) -> None:
    tree = unpack("nvme", tmp_path / "root")
    # What is tried is this machine's, not in memory; the facts are the tree's, which has no such directory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        assert judge_log_dir(Path(directory), "epoll", tree).name in ("plausible", "too-fast")
        assert list(Path(directory).iterdir()) == []


def test_a_saved_measurement_of_these_disks_is_believed(tmp_path: Path) -> None:
    tree = unpack("nvme", tmp_path)
    log_dir = Path("/nonexistent/kafka")
    assert judge_log_dir(log_dir, "epoll", tree).name == "unknown", "nothing can be tried in another machine's dir"
    measurement = changed(recorded("virtual-machine"), write_direct_4KiB={"p50_us": 60.0}, sync_4KiB={"p50_us": 1.0})
    machine = json.loads(json.dumps(read_machine([log_dir], tree).as_dict()))
    saved = tmp_path / "var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(measurement.replace(machine=machine).to_json())
    found = judge_log_dir(log_dir, "epoll", tree)
    assert found.name == "too-fast"
    assert "returns in 1.0 µs" in found.why
    machine["storage"][0]["disks"][0]["model"] = "Another Drive"
    saved.write_text(measurement.replace(machine=machine).to_json())
    assert judge_log_dir(log_dir, "epoll", tree).name == "unknown"
    saved.write_text(measurement.replace(machine={}).to_json())
    assert judge_log_dir(log_dir, "epoll", tree).name == "unknown"


def config(**values: str) -> BrokerConfig:
    return BrokerConfig.load(None, [f"{name.replace('_', '.')}={value}" for name, value in values.items()])


def test_who_promises_durability() -> None:
    image = MetadataImage("cluster")
    assert not promises_durability(config(), image)
    assert promises_durability(config(pybroker_durability="interval"), image)
    assert promises_durability(config(log_flush_interval_messages="1"), image)
    of_a_broker = image.replace(configs={(RESOURCE_BROKER, "1"): {"flush.messages": "1"}})
    assert not promises_durability(config(), of_a_broker), "no setting of a broker"
    of_a_topic = image.replace(configs={(RESOURCE_TOPIC, "payments"): {"flush.messages": "1"}})
    assert promises_durability(config(), of_a_topic)
