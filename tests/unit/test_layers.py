"""The layers of `csrc/` only look down, and only `abi/` stands behind the headers of `csrc/include`.

A directory may include its own headers and those of the layers before it in `LAYERS`. import-linter holds the Python
packages to the same rule; its contract is in pyproject.toml.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
LAYERS = ("base", "cpu", "io", "measure", "net", "wire", "record", "log", "replica", "server", "abi")
PUBLIC_HEADERS = ("pybroker.h", "pybroker_tools.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def sources() -> Iterator[Path]:
    """Every C file of a layer, generated ones left out, relative to `csrc/`."""
    for layer in LAYERS:
        for path in sorted((CSRC / layer).rglob("*.[ch]")):
            if "generated" not in path.relative_to(CSRC).parts:
                yield path.relative_to(CSRC)


def violation(source: Path, included: str) -> str | None:
    """Why `source`, relative to `csrc/`, may not include `included`; None when it may."""
    layer = source.parts[0]
    if included in PUBLIC_HEADERS:
        return None if layer == "abi" else f"{source}: only abi/ may include {included}"
    target = Path(included).parts[0]
    if "/" not in included or target not in LAYERS:
        return f'{source}: "{included}" has to be a path from csrc/ that starts with a layer'
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{source}: {layer}/ lies below {target}/ and may not include {included}"
    return None


def test_every_directory_with_code_is_a_layer() -> None:
    other = {"include", "tests", "fuzz", "perf"}
    directories = {path.relative_to(CSRC).parts[0] for path in CSRC.rglob("*.[ch]")}
    assert directories - other <= set(LAYERS)


def test_layers_only_look_down() -> None:
    checked = list(sources())
    assert checked, "no C sources found: this test looks in the wrong place"
    found = [
        problem
        for source in checked
        for included in INCLUDE.findall((CSRC / source).read_text())
        if (problem := violation(source, included))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "included", "allowed"),
    [
        ("log/segment/segment.c", "log/segment/segment.h", True),
        ("log/segment/segment.c", "base/assert.h", True),
        ("log/segment/segment.c", "replica/partition.h", False),
        ("io/io.c", "net/loop.h", False),
        ("abi/broker.c", "pybroker.h", True),
        ("abi/walk.c", "pybroker_tools.h", True),
        ("server/listener.c", "pybroker.h", False),
        ("log/walk/walk.c", "pybroker_tools.h", False),
        ("log/segment/segment.c", "segment.h", False),
        ("log/segment/segment.c", "../base/assert.h", False),
    ],
)
def test_the_rule_itself(source: str, included: str, allowed: bool) -> None:
    assert (violation(Path(source), included) is None) is allowed
