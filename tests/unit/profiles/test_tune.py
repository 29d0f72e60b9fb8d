"""What `tune` makes of measurements: a recorded one, and those of other disks."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import changed, hdd_like, nvme_like, on_machine, recorded, without

from pybroker.config.broker import BrokerConfig
from pybroker.profiles import load_profile
from pybroker.profiles.document import format_document, read_document
from pybroker.profiles.keys import PROFILE_KEYS, Setting
from pybroker.profiles.measurement.result import Measurement
from pybroker.profiles.measurement.tune import tune, tuned_profile_of

BOTH = ("paced", "direct")


def settings(measurement: Measurement, *engines: str) -> dict[str, Setting]:
    return {each.key: each.value for each in tune(measurement, PROFILE_KEYS, engines or BOTH)}


def why(measurement: Measurement, key: str, *engines: str) -> str:
    return next(each.why for each in tune(measurement, PROFILE_KEYS, engines or BOTH) if each.key == key)


def test_the_recorded_virtual_machine() -> None:
    found = settings(recorded("virtual-machine"))
    assert found == {
        "append_engine": "direct",
        "reactors": 1,
        "spin_us": 0,
        "buffer_budget_bytes": 64 << 20,
        "tail_ring_budget_bytes": 512 << 20,
    }


def test_a_fast_drive_is_written_past_the_page_cache() -> None:
    found = settings(nvme_like())
    # 4.8 GB/s x 90 ms is 412 MiB; 8 reactors are half of the CPUs; 20 µs of spinning do as well as more.
    assert found == {
        "append_engine": "direct",
        "reactors": 8,
        "spin_us": 20,
        "buffer_budget_bytes": 256 << 20,
        "tail_ring_budget_bytes": 512 << 20,
    }
    assert why(nvme_like(), "append_engine") == (
        "new ground is written past the page cache at 4500 MB/s and 0.06 CPU s/GB, through it at 1900 MB/s and 0.55"
    )


def test_a_disk_that_turns_is_written_through_the_page_cache() -> None:
    found = settings(hdd_like())
    assert found["append_engine"] == "paced"
    assert found["reactors"] == 1, "one is enough for 160 MB/s"
    assert "even with 1 KiB requests" in why(hdd_like(), "reactors")


def test_an_engine_that_is_not_there_is_not_chosen() -> None:
    assert settings(nvme_like(), "paced")["append_engine"] == "paced"
    assert "has no engine that does so" in why(nvme_like(), "append_engine", "paced")


def test_a_file_system_that_refuses() -> None:
    found = without(nvme_like(), "write.direct", "write.durable", "sync", "read.random")
    assert settings(found)["append_engine"] == "paced"
    assert "refuses" in why(found, "append_engine")


def test_a_quota_counts_for_cpus() -> None:
    found = on_machine(nvme_like(), control_group={"cpu_quota": 5.0})
    assert settings(found)["reactors"] == 2
    assert "half of 5 CPUs (the control group's quota)" in why(found, "reactors")


def test_a_lone_cpu_never_spins() -> None:
    found = on_machine(nvme_like(), cpu={"allowed_count": 1})
    assert settings(found)["spin_us"] == 0
    assert settings(found)["reactors"] == 1


def test_buffers_are_bounded_by_memory() -> None:
    found = on_machine(nvme_like(), control_group={"memory_max_bytes": 2 << 30})
    assert settings(found)["buffer_budget_bytes"] == 128 << 20
    assert "bounded by memory (2048 MiB)" in why(found, "buffer_budget_bytes")


def test_rings_are_bounded_by_memory_and_there_only_for_direct() -> None:
    small = on_machine(nvme_like(), control_group={"memory_max_bytes": 3 << 30})
    assert settings(small)["tail_ring_budget_bytes"] == 192 << 20
    assert why(small, "tail_ring_budget_bytes") == (
        "6 logs that are written to steadily, 32 MiB for each; a sixteenth of memory (3072 MiB)"
    )
    tiny = on_machine(nvme_like(), control_group={"memory_max_bytes": 100 << 20})
    assert settings(tiny)["tail_ring_budget_bytes"] == 32 << 20
    assert "tail_ring_budget_bytes" not in settings(hdd_like())


@pytest.mark.parametrize("prefix", ["write.", "round_trip.", "receive."])
def test_what_was_not_measured_is_left_to_the_generic_profile(prefix: str) -> None:
    found = without(recorded("virtual-machine"), prefix)
    assert settings(found).keys() < settings(recorded("virtual-machine")).keys()


def test_small_differences_do_not_change_the_engine() -> None:
    close = changed(nvme_like(), write_paced_128KiB={"bytes_per_second": 4.5e9, "cpu_seconds_per_gb": 0.062})
    assert settings(close)["append_engine"] == "paced"


def test_the_profile_is_one_that_a_broker_takes(tmp_path: Path) -> None:
    document = tuned_profile_of(hdd_like(), PROFILE_KEYS, ("paced",))
    path = tmp_path / "profile.toml"
    path.write_text(format_document(document, "made from\na measurement"))
    read = read_document(path)
    assert (read.match, read.settings, read.why) == (document.match, document.settings, document.why)
    profile = load_profile(BrokerConfig.load(None, [f"pybroker.profile={path}", "pybroker.spin.us=7"]))
    assert (profile.name, profile.reactor_count, profile.append_engine) == ("tuned", 1, "paced")
    assert profile.spin_us == 7, "an explicit setting wins"
