"""A wheel and an editable install both build from a fresh copy of the tree, and the installed extension loads.

Each environment is new and built by pip in isolation, as on a user's machine, so this downloads build requirements.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Started elsewhere, so that what loads is what was installed; the ABI version proves that the C code is linked in.
LOAD = "from pybroker.native import _pybroker as x; print(x.__file__, x.lib.pb_abi_version() == x.lib.PB_ABI_VERSION)"

# The load generator of `pybroker perf`, and that it can be run.
GENERATOR = """
import subprocess
from pybroker.perf.generator import find_generator
print(subprocess.run([find_generator(), "--help"], check=True, stdout=subprocess.DEVNULL).args[0])
"""


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}:\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files git knows or would take: what a fresh clone of this state has."""
    copy = tmp_path_factory.mktemp("tree")
    for name in run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an empty virtual environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    return tmp_path / "venv" / "bin" / "python"


def load_extension(python: Path, cwd: Path) -> Path:
    """Load the extension outside of the tree; returns the file it came from."""
    file, same_version = run(python, "-c", LOAD, cwd=cwd).split()
    assert same_version == "True"
    return Path(file)


def test_a_wheel_serves_every_python_from_3_11(tree: Path, python: Path, tmp_path: Path) -> None:
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, tree, cwd=tmp_path)
    (wheel,) = tmp_path.glob("pybroker-*.whl")
    assert "-cp311-abi3-linux_" in wheel.name
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    assert load_extension(python, tmp_path).is_relative_to(tmp_path / "venv")
    assert "serve" in run(python.parent / "pybroker", "--help", cwd=tmp_path)
    assert Path(run(python, "-c", GENERATOR, cwd=tmp_path).strip()).is_relative_to(tmp_path / "venv")


def test_a_source_distribution_has_all_it_takes(tree: Path, python: Path, tmp_path: Path) -> None:
    run(python, "-m", "pip", "install", "-q", "build", cwd=tmp_path)
    run(python, "-m", "build", "--sdist", "--outdir", tmp_path, tree, cwd=tmp_path)
    (archive,) = tmp_path.glob("pybroker-*.tar.gz")
    run(python, "-m", "pip", "install", "-q", archive, cwd=tmp_path)
    assert load_extension(python, tmp_path).is_relative_to(tmp_path / "venv")
    assert Path(run(python, "-c", GENERATOR, cwd=tmp_path).strip()).is_relative_to(tmp_path / "venv")


def test_an_editable_install_loads_from_the_tree(tree: Path, python: Path, tmp_path: Path) -> None:
    run(python, "-m", "pip", "install", "-q", "-e", tree, cwd=tmp_path)
    assert load_extension(python, tmp_path).is_relative_to(tree)
