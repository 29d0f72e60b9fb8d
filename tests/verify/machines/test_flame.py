"""`make flame`: C, the kernel and Python of a loaded broker in one picture, by the real perf and py-spy."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[3]


def columns(picture: Path) -> dict[str, set[str]]:
    """Names of all frames that lie above each thread's."""
    frames = [
        (group.attrib["data-name"], int(group.attrib["data-level"]), float(group.attrib["data-x"]))
        for group in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}g")
    ]
    threads = sorted((x, name) for name, level, x in frames if level == 1)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, level, x in frames:
        if level > 1:
            owner = max((each for each in threads if each[0] <= x + 1e-3), default=threads[0])
            found[owner[1]].add(name)
    return found


def test_c_and_python_are_in_one_picture(tmp_path: Path) -> None:
    picture = tmp_path / "flame.svg"
    words = ["-m", "bench.flame", "--seconds", "4", "--output", str(picture)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = columns(picture)
    python, reactor = found["MainThread"], found["pb-reactor-0"]
    assert any(name.startswith("EventPump.") and "event_pump.py" in name for name in python), python
    assert any(name.startswith("pb_") for name in reactor), reactor
    assert any(name.endswith("[kernel]") for name in reactor), reactor
    assert not any(".py:" in name for name in reactor)
