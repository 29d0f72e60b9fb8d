"""The examples of docs/testing.md, run as a reader would: each pasted into a file of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_of_the_guide_works(tmp_path: Path) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(examples)} passed" in done.stdout
    assert len(examples) >= 4
