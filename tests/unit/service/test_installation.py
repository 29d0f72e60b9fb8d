"""`pybroker service install`, `uninstall` and `status` on an image: what is told, written, kept and taken away."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.config.broker import BrokerConfig
from pybroker.profiles.library import shipped_profiles
from pybroker.service import installation
from pybroker.service.deployment import INSTALLED_PATHS, files, profile_drop_in
from pybroker.service.installation import Run, below

PROGRAM = "/opt/pybroker/bin/pybroker"
UNIT = "etc/systemd/system/pybroker.service"
PROFILE = f"{UNIT}.d/50-profile.conf"
LOG_DIRS = f"{UNIT}.d/50-log-dirs.conf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "image").mkdir()
    return tmp_path / "image"


def call(root: Path, name: str, *arguments: str, answer: str | None = None) -> Result:
    program = ["--executable", PROGRAM] if name == "install" else []
    return CliRunner().invoke(main, ["service", name, "--root", str(root), *program, *arguments], input=answer)


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_it_says_what_it_will_do_and_asks(root: Path) -> None:
    told = call(root, "install", "--dry-run")
    assert told.exit_code == 0
    assert f"To run `{PROGRAM} serve /etc/pybroker/server.properties` as a service:" in told.output
    assert f"  write {root}/{UNIT}: the unit\n" in told.output
    assert tree(root) == {}
    refused = call(root, "install", answer="n\n")
    assert (refused.exit_code, tree(root)) == (1, {})
    agreed = call(root, "install", answer="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert set(tree(root)) == {
        UNIT,
        PROFILE,
        "etc/sysusers.d/pybroker.conf",
        "etc/tmpfiles.d/pybroker.conf",
        "etc/pybroker/server.properties",
    }
    assert f"\nExecStart={PROGRAM} serve /etc/pybroker/server.properties\n" in tree(root)[UNIT]
    assert "\nlisteners=PLAINTEXT://127.0.0.1:9092\n" in tree(root)["etc/pybroker/server.properties"]


def test_twice_is_once(root: Path) -> None:
    assert call(root, "install", "--yes").exit_code == 0
    before = tree(root)
    again = call(root, "install", "--yes")
    assert (again.exit_code, again.output) == (0, "Everything is in place.\n")
    assert tree(root) == before


def test_what_is_changed_by_hand_is_told_and_replaced(root: Path) -> None:
    call(root, "install", "--yes")
    installed = tree(root)[UNIT]
    (root / UNIT).write_text(installed.replace("WatchdogSec=30s", "WatchdogSec=3s"))
    assert f"{root}/{UNIT}: changed by hand" in call(root, "status").output
    told = call(root, "install", "--yes")
    assert f"  replace {root}/{UNIT}: the unit\n" in told.output
    assert tree(root)[UNIT] == installed


def test_files_of_others_are_left_alone(root: Path) -> None:
    (root / UNIT).parent.mkdir(parents=True)
    (root / UNIT).write_text("[Service]\nExecStart=/bin/true\n")
    for name in ("install", "uninstall"):
        refused = call(root, name, "--yes")
        assert refused.exit_code == 1
        assert f"{root}/{UNIT} was not written by" in refused.output
        assert set(tree(root)) == {UNIT}
    assert "written by somebody else" in call(root, "status").output


def test_settings_decide_what_the_service_may_write_to(root: Path) -> None:
    settings = root / "etc/kafka.properties"
    settings.parent.mkdir()
    settings.write_text('log.dirs=/var/lib/pybroker/a,/srv/b,/srv/100%"c\n')
    installed = call(root, "install", "/etc/kafka.properties", "--yes", "--profile", "hdd")
    assert installed.exit_code == 0, installed.output
    found = tree(root)
    assert "etc/pybroker/server.properties" not in found, "it has its own"
    assert "serve /etc/kafka.properties\n" in found[UNIT]
    assert r'ReadWritePaths="/srv/b" "/srv/100%%\"c"' in found[LOG_DIRS]
    assert 'RequiresMountsFor="/srv/b"' in found[LOG_DIRS]
    assert "\nd /srv/b :0750 :pybroker :pybroker -\n" in found["etc/tmpfiles.d/pybroker.conf"]
    assert "TimeoutStopSec=20min" in found[PROFILE]
    settings.write_text("log.dirs=/var/lib/pybroker\n")
    told = call(root, "install", "/etc/kafka.properties", "--yes", "--profile", "hdd")
    assert f"remove {root}/{LOG_DIRS}: it is not needed any more" in told.output
    assert LOG_DIRS not in tree(root)


def test_uninstalling_leaves_data_and_settings(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(Run, "make", lambda self: ran.append(self.command))
    call(root, "install", "--yes", "--now")
    (root / "var/lib/pybroker").mkdir(parents=True)
    (root / "var/lib/pybroker/meta.properties").write_text("")
    told = call(root, "uninstall", "--yes")
    assert told.exit_code == 0, told.output
    assert set(tree(root)) == {"etc/pybroker/server.properties", "var/lib/pybroker/meta.properties"}
    assert not (root / UNIT).with_name("pybroker.service.d").exists()
    assert call(root, "uninstall", "--yes").output == "Nothing is installed.\n"
    systemctl = ("systemctl", f"--root={root}")
    assert ran == [(*systemctl, "enable", "pybroker.service"), (*systemctl, "disable", "pybroker.service")]


def test_commands_of_the_running_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told, not run: of a machine that systemd runs, with nothing installed."""
    monkeypatch.setattr(installation, "is_booted", lambda: True)
    monkeypatch.setattr(installation, "_read", lambda path: None)
    monkeypatch.setattr(installation, "_installed", lambda root: [])
    config = BrokerConfig.load(None, ["log.dirs=/var/lib/pybroker"])
    wanted = files(PurePosixPath(PROGRAM), PurePosixPath("/etc/pybroker/server.properties"), "generic", config)
    steps = installation.install_steps(wanted, Path("/"), now=True)
    assert [step.told for step in steps if isinstance(step, Run)] == [
        "run systemd-sysusers /etc/sysusers.d/pybroker.conf",
        "run systemd-tmpfiles --create /etc/tmpfiles.d/pybroker.conf",
        "run systemctl daemon-reload",
        "run systemctl enable --now pybroker.service",
    ]


def test_status_of_an_image(root: Path) -> None:
    missing = call(root, "status")
    assert (missing.exit_code, missing.output.startswith("Not installed")) == (4, True)
    call(root, "install", "--yes")
    found = call(root, "status", "--json")
    assert found.exit_code == 3
    state = json.loads(found.output)
    assert (state["installed"], state["active"], state["manager"]) == (True, False, {})
    assert {each["note"] for each in state["files"]} == {""}
    assert [each["path"] for each in state["files"]] == [
        str(below(root, path)) for path in INSTALLED_PATHS if path.name != "50-log-dirs.conf"
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ([], "log.dirs=/home/kafka", "the log dir /home/kafka lies below /home, which is hidden from the service"),
        ([], "log.dirs=data", "log.dirs=data: a service has no working directory"),
        (["--executable", "/root/bin/pybroker"], "", "the program /root/bin/pybroker lies below /root"),
    ],
)
def test_what_cannot_be_a_service_is_refused(root: Path, arguments: list[str], settings: str, words: str) -> None:
    (root / "etc/pybroker").mkdir(parents=True)
    (root / "etc/pybroker/server.properties").write_text(settings + "\n")
    refused = call(root, "install", "--yes", *arguments)
    assert refused.exit_code == 1
    assert words in refused.output
    assert set(tree(root)) == {"etc/pybroker/server.properties"}


def test_a_configuration_that_is_not_accepted(root: Path) -> None:
    (root / "etc/pybroker").mkdir(parents=True)
    (root / "etc/pybroker/server.properties").write_text("log.cleanup.policy=sometimes\n")
    refused = call(root, "install", "--yes")
    assert refused.exit_code == 2
    assert "log.cleanup.policy" in refused.output


@pytest.mark.parametrize("name", [each.name for each in shipped_profiles()])
def test_each_hardware_profile_has_a_drop_in(name: str) -> None:
    text = profile_drop_in(name)
    assert text.startswith("# ")
    assert "\n[Service]\n" in text
    if name != "generic":
        assert text != profile_drop_in("generic")
