"""What the README promises a newcomer: clone, `make run`, and produce and consume work.

The clone is of what is committed here. `make run` sets up an environment of its own, so this downloads packages.
"""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import parse_ready_line
from tests.harness.process import ChildProcess, free_port

ROOT = Path(__file__).resolve().parents[3]
LINE_COUNT = 1_000_000
# Prose that every Debian machine has; the last two also where documentation was left out at installation.
TEXT_DIRS = ("/usr/share/dict", "/usr/share/common-licenses", "/usr/share/doc", "/usr/share/man", sys.prefix, ROOT)
TEXT_SUFFIXES = ("", ".gz", ".txt", ".md", ".rst", ".html", ".py")
# Far below message.max.bytes.
MAX_LINE_BYTES = 100_000
SET_UP_SECONDS = 900.0
README_ADDRESS = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fresh") / "pybroker"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def address(clone: Path) -> Iterator[str]:
    """`make run` in the clone, ended by Ctrl-C as a user would, and ended well."""
    port = free_port()
    output = clone.parent / "make-run.out"
    child = ChildProcess(["make", "-C", str(clone), "run", f"PORT={port}"], output)
    try:
        ready = child.wait_for_line(parse_ready_line, SET_UP_SECONDS)
        assert f"127.0.0.1:{port}" in ready.get("listeners")
        yield f"127.0.0.1:{port}"
        # Ctrl-C reaches the whole foreground process group: make and the broker.
        os.killpg(child.pid, signal.SIGINT)
        child.wait(60)
        assert "closed in" in child.tail(), child.tail()
        assert (clone / "data" / ".kafka_cleanshutdown").exists()
    finally:
        if child.running:
            os.killpg(child.pid, signal.SIGKILL)
            child.kill()


def _texts() -> Iterator[bytes]:
    """Contents of the machine's text files, in a fixed order."""
    for directory in TEXT_DIRS:
        for path in sorted(Path(directory).rglob("*")):
            if path.suffix not in TEXT_SUFFIXES or not path.is_file() or path.is_symlink():
                continue
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            if b"\0" not in content:
                yield content


def _write_text(path: Path) -> int:
    """One million lines that people wrote; the size in bytes. kcat sends no empty lines, so there are none."""
    count = 0
    with open(path, "wb") as out:
        while count < LINE_COUNT:
            before = count
            for content in _texts():
                lines = [line for line in content.split(b"\n") if line and len(line) <= MAX_LINE_BYTES]
                lines = lines[: LINE_COUNT - count]
                out.writelines(line + b"\n" for line in lines)
                count += len(lines)
                if count == LINE_COUNT:
                    break
            assert count > before, f"no text files below {TEXT_DIRS}"
    return path.stat().st_size


def test_a_million_lines_come_back_identical(address: str, tmp_path: Path) -> None:
    text, back = tmp_path / "text", tmp_path / "back"
    size_bytes = _write_text(text)
    with open(text, "rb") as lines:
        subprocess.run(["kcat", "-b", address, "-P", "-t", "text"], stdin=lines, check=True, timeout=300)
    with open(back, "wb") as out:
        command = ["kcat", "-b", address, "-C", "-t", "text", "-o", "beginning", "-e", "-q"]
        subprocess.run(command, stdout=out, check=True, timeout=300)
    assert back.stat().st_size == size_bytes
    assert subprocess.run(["cmp", str(text), str(back)], check=False).returncode == 0


def _readme_blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readmes_commands_with_kcat(address: str) -> None:
    (block,) = [block for block in _readme_blocks("sh") if "kcat -b" in block]
    script = block.replace(README_ADDRESS, address)
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "1000\n"


def test_the_readmes_own_commands(address: str) -> None:
    (block,) = [block for block in _readme_blocks("sh") if "pybroker produce" in block]
    script = block.replace(".venv/bin", str(Path(sys.executable).parent))
    environment = {**os.environ, "PYBROKER_BOOTSTRAP_SERVER": address}
    done = subprocess.run(
        ["bash", "-euc", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "1000\n"


def test_the_readmes_program(address: str) -> None:
    (program,) = _readme_blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", program.replace(README_ADDRESS, address)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.startswith("1000 records")
