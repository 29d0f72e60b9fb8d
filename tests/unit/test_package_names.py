"""No text sends a stranger to a name on PyPI that this project does not own, its own included."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Packages of others that messages and pages may name.
KNOWN = {"confluent-kafka", "matplotlib", "pre-commit", "py-spy"}
_INSTALL = re.compile(r"pip install ([^`\n]*)")


def _named(text: str) -> set[str]:
    """The names behind `pip install`: no options, no files, no extras of this checkout."""
    words = [word.strip("'\",:;)").rstrip(".") for found in _INSTALL.findall(text) for word in found.split()[:1]]
    return {word for word in words if not word.startswith("-") and not word.startswith(".") and ".whl" not in word}


def _texts() -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files", "-z", "pybroker/*.py", "docs/*.md", "*.md", "bench/*.py", "deploy"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return [ROOT / name for name in found if name and not name.startswith("docs/adr")]


def test_only_known_packages_are_named() -> None:
    texts = _texts()
    assert len(texts) > 100
    wrong = {str(path.relative_to(ROOT)): _named(path.read_text()) - KNOWN for path in texts}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    "text", ["run pip install 'pybroker[tools]'", "`pip install pybroker`", "pip install kafkarrow"]
)
def test_other_names_would_be_found(text: str) -> None:
    assert _named(text) - KNOWN
