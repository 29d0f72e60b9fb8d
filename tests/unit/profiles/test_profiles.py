"""Which profile a machine gets, what it sets, and what wins over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trees import unpack

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.profiles import Profile, choose_here, load_profile
from pybroker.profiles.choice import Choice
from pybroker.profiles.describe import describe_medium
from pybroker.profiles.document import ProfileDocument, format_document, read_document
from pybroker.profiles.keys import PROFILE_KEYS
from pybroker.profiles.library import measurement_paths, shipped_profiles, user_measurement
from pybroker.profiles.matching import FACTS, IDENTITY, facts_of


def config(*overrides: str, log_dirs: str = "/data/kafka") -> BrokerConfig:
    return BrokerConfig.load(None, [f"log.dirs={log_dirs}", *overrides])


def chosen(name: str, tmp_path: Path, *overrides: str, log_dirs: str = "/data/kafka") -> Choice:
    return choose_here(config(*overrides, log_dirs=log_dirs), unpack(name, tmp_path / "root"))


@pytest.mark.parametrize(
    ("name", "log_dirs", "recognised", "used"),
    [
        ("nvme", "/data", "nvme", "generic"),
        ("sata-ssd", "/data", "sata-ssd", "generic"),
        ("hdd", "/data", "hdd", "generic"),
        ("hdd", "/var/kafka", "nvme", "generic"),
        ("hdd", "/data,/var/kafka", None, "generic"),
        ("virtio", "/data", "virtual-machine", "virtual-machine"),
        ("virtio", "/loop", "virtual-machine", "virtual-machine"),
        ("container", "/data", None, "generic"),
        ("board", "/data", None, "generic"),
    ],
)
def test_a_machine_is_recognised_by_its_disks(
    name: str, log_dirs: str, recognised: str | None, used: str, tmp_path: Path
) -> None:
    choice = chosen(name, tmp_path, log_dirs=log_dirs)
    assert (choice.recognised.name if choice.recognised else None, choice.profile.name) == (recognised, used)
    assert ("nobody has measured" in choice.reason) == (recognised is not None and used == "generic")
    assert (choice.advice is not None) == (used == "generic")
    if choice.advice is not None:
        assert "pybroker profile tune" in choice.advice


@pytest.mark.parametrize("name", ["nvme", "sata-ssd", "hdd", "virtio", "container", "board"])
def test_classes_exclude_each_other(name: str, tmp_path: Path) -> None:
    for log_dirs in ("/data", "/"):
        choice = choose_here(config(log_dirs=log_dirs), unpack(name, tmp_path / f"root{len(log_dirs)}"))
        assert sum(each.matches for each in choice.candidates) <= 1


def test_every_rule_is_told(tmp_path: Path) -> None:
    candidates = {each.document.name: each for each in chosen("hdd", tmp_path).candidates}
    assert sorted(candidates) == ["hdd", "nvme", "sata-ssd", "virtual-machine"]
    rules = {rule.fact: rule for rule in candidates["sata-ssd"].rules}
    assert {name: rule.matches for name, rule in rules.items()} == {"virtual": True, "transport": True, "medium": False}
    assert (rules["medium"].wanted, rules["medium"].found) == ("flash", "rotating")
    assert not candidates["sata-ssd"].matches
    assert candidates["hdd"].matches


def measurement(choice: Choice, medium: str) -> str:
    return json.dumps(
        {"machine": choice.machine.as_dict(), "medium": {"name": medium, "why": "a cold read took 90 µs"}}
    )


def test_what_was_measured_outranks_what_the_kernel_says(tmp_path: Path) -> None:
    root = tmp_path / "root"
    choice = chosen("virtio", tmp_path)
    assert (choice.facts["medium"], choice.medium) == ("unknown", None)
    saved = root / "var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(measurement(choice, "flash"))
    choice = choose_here(config(), root)
    assert choice.medium is not None
    assert (choice.facts["medium"], choice.medium.path) == ("flash", saved)
    assert "90 µs" in choice.medium.why
    assert choice.as_dict()["measurement"]["path"] == str(saved)


def test_a_measurement_that_cannot_tell_outranks_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    saved = root / "var/lib/pybroker/measurement.json"
    choice = chosen("hdd", tmp_path)
    saved.parent.mkdir(parents=True)
    saved.write_text(measurement(choice, "unknown"))
    choice = choose_here(config(), root)
    assert choice.facts["medium"] == "rotating"
    assert describe_medium(choice).startswith(
        "rotating: /sys calls sda rotating; /sys calls sdb rotating. Measuring could"
    )


def test_a_disk_that_lies_is_found_out(tmp_path: Path) -> None:
    choice = chosen("hdd", tmp_path)
    saved = tmp_path / "root/var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(measurement(choice, "flash"))
    again = choose_here(config(), tmp_path / "root")
    assert again.recognised is not None
    assert again.recognised.name == "sata-ssd"
    # What was measured of /data says nothing of the drive beside it.
    assert choose_here(config(log_dirs="/var/kafka"), tmp_path / "root").medium is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"medium": {"name": "flash", "why": ""}}', '{"medium": 1}'])
def test_a_file_that_is_no_measurement_counts_as_none(text: str, tmp_path: Path) -> None:
    unpack("hdd", tmp_path)
    saved = tmp_path / "var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(text)
    assert choose_here(config(), tmp_path).medium is None


@pytest.mark.parametrize(("cpus", "reactor_count"), [("0", 1), ("0-1", 1), ("0-2", 1), ("0-7", 4), ("0-63", 4)])
def test_generic_takes_half_of_the_cpus(cpus: str, reactor_count: int, tmp_path: Path) -> None:
    root = unpack("nvme", tmp_path)
    (root / "proc/self/status").write_text(f"Cpus_allowed_list:\t{cpus}\n")
    (root / "sys/devices/system/cpu/online").write_text("0-63")
    profile = load_profile(config(), root)
    assert profile == Profile("generic", reactor_count, 50, "paced", 64 << 20, 256 << 20, profile.history_cache_bytes)
    assert load_profile(config("pybroker.profile=generic"), root) == profile


@pytest.mark.parametrize(("quota", "reactor_count"), [("400000", 2), ("250000", 1), ("50000", 1), ("max", 4)])
def test_a_control_group_may_leave_less_than_half(quota: str, reactor_count: int, tmp_path: Path) -> None:
    root = unpack("nvme", tmp_path)
    (root / "sys/fs/cgroup/system.slice/cpu.max").write_text(f"{quota} 100000")
    assert load_profile(config(), root).reactor_count == reactor_count


@pytest.mark.parametrize(
    ("limit", "setting", "cache_bytes"),
    [
        ("max", "", 2 << 30),
        ("1500000000", "", 187_500_000),
        ("1500000000", "pybroker.history.cache.bytes=7", 7),
        ("1500000000", "pybroker.history.cache.bytes=9223372036854775807", 750_000_000),
    ],
)
def test_history_has_a_share_of_the_memory(limit: str, setting: str, cache_bytes: int, tmp_path: Path) -> None:
    root = unpack("nvme", tmp_path)
    (root / "proc/meminfo").write_text(f"MemTotal: {16 << 20} kB\n")
    (root / "sys/fs/cgroup/system.slice/memory.max").write_text(f"{limit}\n")
    assert load_profile(config(*filter(None, [setting])), root).history_cache_bytes == cache_bytes


def test_explicit_settings_win(tmp_path: Path) -> None:
    root = unpack("virtio", tmp_path)
    explicit = ("pybroker.reactors=3", "pybroker.spin.us=0", "pybroker.buffer.budget.bytes=2097152")
    profile = load_profile(config(*explicit), root)
    assert (profile.reactor_count, profile.spin_us, profile.buffer_budget_bytes) == (3, 0, 2 << 20)
    settings = choose_here(config(*explicit), root).settings
    assert (settings["spin_us"].source, settings["spin_us"].place) == ("explicit", "pybroker.spin.us (--override)")
    # These values say that the profile decides.
    deferring = ("pybroker.reactors=0", "pybroker.spin.us=-1", "pybroker.append.engine=auto")
    assert load_profile(config(*deferring), root) == load_profile(config(), root)


def test_what_a_profile_leaves_open_is_as_in_generic(tmp_path: Path) -> None:
    settings = chosen("virtio", tmp_path).settings
    assert set(settings) == set(PROFILE_KEYS)
    assert (settings["spin_us"].source, settings["reactors_max"].source) == ("virtual-machine", "generic")
    assert settings["reactors_max"].place.endswith("hw-profiles/generic.toml")


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"toaster.*auto, generic"):
        load_profile(config("pybroker.profile=toaster"))


def test_a_profile_that_sets_nothing_may_be_named(tmp_path: Path) -> None:
    choice = chosen("nvme", tmp_path, "pybroker.profile=hdd")
    assert (choice.profile.name, choice.reason.split(",")[0]) == ("generic", "pybroker.profile asks for hdd")
    assert choice.advice is not None


def tuned(choice: Choice) -> str:
    facts = facts_of(choice.machine)
    why = {"spin_us": 'a "lone" request, \\ and \x7f'}
    match = {name: facts[name] for name in IDENTITY}
    return format_document(
        ProfileDocument("tuned", "This machine", match, {"spin_us": 77}, why), "Made by a test\n\nfor it."
    )


def test_a_profile_of_ones_own_is_a_file(tmp_path: Path) -> None:
    choice = chosen("virtio", tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(tuned(choice))
    profile = load_profile(config(f"pybroker.profile={path}"), tmp_path / "root")
    assert (profile.name, profile.spin_us, profile.buffer_budget_bytes) == ("tuned", 77, 64 << 20)
    document = read_document(path)
    assert document.why == {"spin_us": 'a "lone" request, \\ and \x7f'}
    assert document.match["disk_bytes"] == 536870912 * 512
    assert path.read_text().startswith("# Made by a test\n#\n# for it.\n")
    assert format_document(document) in path.read_text()


def test_a_file_for_another_machine_is_taken_and_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(tuned(chosen("virtio", tmp_path)))
    asked = config(f"pybroker.profile={path}")
    assert choose_here(asked, tmp_path / "root").advice is None
    elsewhere = choose_here(asked, unpack("nvme", tmp_path / "nvme"))
    assert elsewhere.settings["spin_us"].value == 77
    assert elsewhere.advice is not None
    assert elsewhere.advice.startswith(f"{path} was made for another machine (other hypervisor, cpu_model, cpu_count")


def test_auto_takes_the_tuned_profile_of_this_machine(tmp_path: Path) -> None:
    choice = chosen("virtio", tmp_path)
    root = tmp_path / "root"
    path = root / "etc/pybroker/profile.toml"
    path.parent.mkdir(parents=True)
    path.write_text(tuned(choice))
    again = choose_here(config(), root)
    assert (again.profile.name, again.advice, again.settings["spin_us"].value) == ("tuned", None, 77)
    assert again.settings["spin_us"].place == str(path)
    # One that was put there without rules is meant.
    path.write_text("[set]\nspin_us = 12")
    assert load_profile(config(), root).spin_us == 12
    path.write_text(tuned(choice))
    (root / "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/size").write_text("12")
    again = choose_here(config(), root)
    assert again.profile.name == "virtual-machine"
    assert again.advice is not None
    assert "another machine (other disk_bytes)" in again.advice


def test_a_user_without_a_home_has_measured_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", dict[int, object]().__getitem__)
    assert not user_measurement().is_absolute()
    assert load_profile(config(log_dirs=str(tmp_path))).reactor_count >= 1


def test_what_this_user_has_measured_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    system = Path("/var/lib/pybroker/measurement.json")
    assert measurement_paths(Path("/")) == [tmp_path / "pybroker" / "measurement.json", system]
    assert measurement_paths(Path("/copy")) == [Path("/copy/var/lib/pybroker/measurement.json")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[set]\nspin_us = -1", ["spin_us cannot be -1", "0 to 10000"]),
        ("[set]\nspin_us = true", ["spin_us cannot be True"]),
        ('[set]\nreactors = "third"', ["reactors cannot be 'third'", "half"]),
        ('[set]\nappend_engine = "auto"', ["append_engine cannot be 'auto'", "paced"]),
        ("[set]\nspin = 1", ["spin is nothing a profile sets", "spin_us"]),
        ("[match]\ncolour = 1", ["colour", "transport"]),
        ("[match]\nmedium = 1.5", ["medium cannot match 1.5"]),
        ("[match]\nmedium = []", ["medium cannot match []"]),
        ("[why]\nspin_us = 1", ["spin_us cannot be 1"]),
        ("[profile]\nname = 1", ["name cannot be 1"]),
        ("[sets]\nspin_us = 1", ["sets is no table", "match, set, why"]),
        ("set = 1", ["set is no table"]),
        ("[set", ["is not TOML"]),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_profile(config(f"pybroker.profile={path}"))
    assert all(word in str(error.value) for word in [str(path), *words])


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file"):
        load_profile(config(f"pybroker.profile={tmp_path}/missing.toml"))


def test_the_manual_names_every_class_key_and_fact() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text()
    settings = [key.setting for key in PROFILE_KEYS.values() if key.setting is not None]
    names = [*(document.name for document in shipped_profiles()), *settings, *FACTS]
    assert [name for name in names if f"`{name}`" not in manual] == []


def test_shipped_profiles_say_why_they_set_what_they_set() -> None:
    shipped = {document.name: document for document in shipped_profiles()}
    assert sorted(shipped) == ["generic", "hdd", "nvme", "sata-ssd", "virtual-machine"]
    assert set(shipped["generic"].settings) == set(PROFILE_KEYS)
    for document in shipped.values():
        assert document.path is not None
        assert document.path.stem == document.name
        assert document.title
        assert set(document.why) == set(document.settings)
        assert bool(document.match) == (document.name != "generic")
        assert set(document.match) <= set(FACTS)
