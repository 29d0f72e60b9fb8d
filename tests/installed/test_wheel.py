"""The wheel in dist/, installed where nothing of its build is: an empty environment, no compiler, no checkout.

`make wheel-check` makes the wheel first. Its dependencies come as wheels too, from the package index.
"""

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OLDEST_SYSTEM = (2, 36)  # glibc of Debian 12

ROUND_TRIP = """
import sys
from confluent_kafka import Consumer, Producer

address = {"bootstrap.servers": sys.argv[1]}
codecs = ("none", "gzip", "snappy", "lz4", "zstd")
for codec in codecs:
    producer = Producer({**address, "compression.type": codec, "enable.idempotence": True})
    for number in range(100):
        producer.produce("records", key=codec, value=f"{codec} {number} " + "x" * 100)
    assert producer.flush(60) == 0
consumer = Consumer({**address, "group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["records"])
got = set()
while len(got) < 100 * len(codecs):
    message = consumer.poll(60)
    assert message is not None and message.error() is None, message and message.error()
    got.add(tuple(message.value().decode().split()[:2]))
consumer.close()
assert got == {(codec, str(number)) for codec in codecs for number in range(100)}
print(len(got))
"""

FOUND = """
from pybroker.perf.generator import find_generator
from pybroker.profiles.library import shipped_directories, shipped_profiles
from pybroker.protocol.definitions import SCHEMA_DIR
print(find_generator())
print(len(shipped_profiles()), len(list(SCHEMA_DIR.glob("*.schema"))))
for path in shipped_directories("deploy") + shipped_directories("hw-profiles"):
    print(path, *sorted(each.name for each in path.rglob("*.*")))
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The one wheel in dist/."""
    (wheel,) = (ROOT / "dist").glob("pybroker-*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an empty virtual environment."""
    path = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True, timeout=TIMEOUT_S)
    return path


def variables(environment: Path) -> dict[str, str]:
    """This process's, with no way to a compiler or to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CC", "VIRTUAL_ENV"))}
    return {**kept, "PATH": str(environment / "bin")}


def run(environment: Path, command: str, *arguments: str | Path) -> str:
    """Standard output of a command of the environment."""
    done = subprocess.run(
        [environment / "bin" / command, *arguments],
        cwd=environment,
        env=variables(environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command} {arguments}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(environment: Path, wheel: Path) -> Path:
    """The environment with the wheel and confluent-kafka in it."""
    run(environment, "python", "-m", "pip", "install", "-q", "--only-binary=:all:", f"{wheel}[tools]")
    return environment


def test_the_name_says_that_it_runs_on_debian_12(wheel: Path) -> None:
    match = re.search(r"-cp311-abi3-(?:.*\.)?manylinux_(\d+)_(\d+)_\w+\.whl$", wheel.name)
    assert match is not None, wheel.name
    assert (int(match[1]), int(match[2])) <= OLDEST_SYSTEM


def test_no_test_of_ours_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "pybroker/testing/pytest_plugin.py" in names
    assert [name for name in names if name.startswith(("tests/", "bench/"))] == []
    folders = {name.split("/")[2] for name in names if name.startswith("pybroker/testing/") and name.count("/") > 2}
    assert folders == {"embedded"}


def test_nothing_inside_names_the_place_of_its_build(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    places = [os.fsencode(str(path)) for path in (ROOT, Path(sys.base_prefix)) if path not in map(Path, ("/", "/usr"))]
    assert [name for name, content in contents.items() if any(place in content for place in places)] == []


def test_it_needs_glibc_alone(installed: Path) -> None:
    package = next((installed / "lib").glob("python3*/site-packages/pybroker"))
    for file in (*package.glob("native/_pybroker*.so"), package / "perf" / "pbload"):
        listing = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        needed = {Path(line.split()[0]).name for line in listing.splitlines()}
        assert needed - {"linux-vdso.so.1"} <= GLIBC, listing


def test_its_files_are_found(installed: Path) -> None:
    generator, counts, deploy, profiles = run(installed, "python", "-c", FOUND).splitlines()
    assert Path(generator).is_relative_to(installed)
    profile_count, schema_count = map(int, counts.split())
    assert profile_count == len(list((ROOT / "hw-profiles").glob("*.toml")))
    assert schema_count == len(list((ROOT / "pybroker/protocol/schema").glob("*.schema")))
    for line, name in ((deploy, "deploy"), (profiles, "hw-profiles")):
        place, *names = line.split()
        assert Path(place).is_relative_to(installed)
        assert names == sorted(each.name for each in (ROOT / name).rglob("*.*"))
    subprocess.run([generator, "--help"], env=variables(installed), stdout=subprocess.DEVNULL, check=True)


def test_it_serves(installed: Path) -> None:
    version = run(installed, "python", "-c", "import pybroker; print(pybroker.__version__)").strip()
    assert run(installed, "pybroker", "--version").split()[-1] == version
    settings = [
        f"log.dirs={installed / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "pybroker.metrics.listener=127.0.0.1:0",
    ]
    words = [word for setting in settings for word in ("--override", setting)]
    with subprocess.Popen(
        [installed / "bin" / "pybroker", "serve", *words],
        cwd=installed,
        env=variables(installed),
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = re.search(r"listeners=PLAINTEXT://(\S+)", broker.stdout.readline())
            assert ready is not None
            assert run(installed, "python", "-c", ROUND_TRIP, ready[1]).strip() == "500"
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(TIMEOUT_S) == 0
        finally:
            if broker.poll() is None:
                broker.kill()
