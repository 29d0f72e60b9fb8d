"""Folders can be looked over, files held in the head, and functions fit a screen. clang-tidy counts the lines of C
functions."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_FILE_LINES = 900
#: One header is the boundary with a broker (ADR 0002), so it cannot be split further.
BOUNDARY, BOUNDARY_LINES = ROOT / "csrc/include/pybroker.h", 1_000
PYTHON_FILE_LINES = 600
#: Sources and headers, or modules.
FOLDER_FILES = 25
#: Not written by hand, or not ours.
OTHERS = {"generated", "build", "__pycache__"}
PYTHON_FUNCTION_LINES = 70


def files(directory: str, pattern: str) -> list[Path]:
    """The files under `directory`, generated ones left out; at least one, or the test looks in the wrong place."""
    found = [path for path in sorted((ROOT / directory).rglob(pattern)) if "generated" not in path.parts]
    assert found
    return found


def too_long(paths: list[Path], limit: int) -> list[str]:
    lengths = ((path, len(path.read_text().splitlines())) for path in paths)
    return [f"{path.relative_to(ROOT)}: {lines} lines, at most {limit}" for path, lines in lengths if lines > limit]


def long_functions(path: Path) -> list[str]:
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [
        f"{path.relative_to(ROOT)}:{function.lineno}: {function.name}: {lines} lines, at most {PYTHON_FUNCTION_LINES}"
        for function in functions
        if (lines := (function.end_lineno or function.lineno) - function.lineno + 1) > PYTHON_FUNCTION_LINES
    ]


def crowded(paths: list[Path]) -> list[str]:
    """The folders with too many of these files."""
    counts = Counter(path.parent for path in paths if not OTHERS & set(path.parts))
    return [
        f"{folder}: {count} files, at most {FOLDER_FILES}" for folder, count in counts.items() if count > FOLDER_FILES
    ]


def test_folders_can_be_looked_over() -> None:
    directories = ("csrc", "bench", "pybroker", "tests")
    paths = [path.relative_to(ROOT) for each in directories for path in (ROOT / each).rglob("*.*")]
    found = crowded([path for path in paths if path.suffix in {".c", ".h", ".py"}])
    assert not found, "\n".join(found)


def test_a_crowded_folder_is_named() -> None:
    assert crowded([Path(f"csrc/log/{number}.c") for number in range(FOLDER_FILES)]) == []
    assert crowded([Path(f"csrc/log/{number}.c") for number in range(FOLDER_FILES + 1)]) == [
        "csrc/log: 26 files, at most 25"
    ]


def test_c_files_can_be_held_in_the_head() -> None:
    found = too_long([each for each in files("csrc", "*.[ch]") if each != BOUNDARY], C_FILE_LINES)
    found += too_long([BOUNDARY], BOUNDARY_LINES)
    assert not found, "\n".join(found)


def test_python_files_can_be_held_in_the_head() -> None:
    found = too_long(files("pybroker", "*.py") + files("tests/harness", "*.py"), PYTHON_FILE_LINES)
    assert not found, "\n".join(found)


def test_python_functions_fit_a_screen() -> None:
    paths = files("pybroker", "*.py") + files("tests/harness", "*.py")
    found = [problem for path in paths for problem in long_functions(path)]
    assert not found, "\n".join(found)
