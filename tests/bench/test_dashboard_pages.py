"""The site that stands by itself, and the page of machines and profiles."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from bench.asv import site
from bench.asv.dashboard import name_machine
from bench.asv.machines import page
from bench.asv.site import SiteFailed, make_local
from pybroker.results.context import Context
from pybroker.results.row import Row

MENU = '<li id="nav-li-regressions"><a href="#/regressions">Regressions</a></li>'


def index_page(names: list[str]) -> str:
    """A page that takes these from a network, as ASV's does."""
    tags = [
        f'<script src="https://cdn.example/x/{name}" integrity="sha256-x" onerror="f()"></script>'
        for name in names
        if name.endswith(".js")
    ]
    tags += [
        f'<link rel="stylesheet" href="https://cdn.example/x/{name}" integrity="sha256-x" crossorigin="anonymous">'
        for name in names
        if name.endswith(".css")
    ]
    return "\n".join([*tags, '<a href="https://asv.example/">asv</a>', MENU])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Packages as npm packs them."""
    where = tmp_path / "cache"
    where.mkdir()
    for package in {package for _, package, _ in site._LIBRARIES}:
        with tarfile.open(where / f"{package.replace('@', '-')}.tgz", "w:gz") as packed:
            for _, of, member in site._LIBRARIES:
                if of == package:
                    entry = tarfile.TarInfo(f"package/{member}")
                    entry.size = len(member)
                    packed.addfile(entry, io.BytesIO(member.encode()))
    return where


def test_nothing_is_taken_from_elsewhere(tmp_path: Path, cache: Path) -> None:
    names = [name for name, _, _ in site._LIBRARIES]
    (tmp_path / "index.html").write_text(index_page(names))
    make_local(tmp_path, cache)
    text = (tmp_path / "index.html").read_text()
    assert re.findall(r'(?:src|stylesheet" href)="([^"]*)"', text) == [f"vendor/{name}" for name in names]
    assert "integrity" not in text
    assert '<a href="https://asv.example/">' in text
    assert 'href="machines.html"' in text
    assert (tmp_path / "vendor" / "jquery.flot.min.js").read_text() == "jquery.flot.js"


def test_a_page_that_takes_more_is_refused(tmp_path: Path, cache: Path) -> None:
    names = [name for name, _, _ in site._LIBRARIES]
    (tmp_path / "index.html").write_text(index_page([*names, "new.js"]))
    with pytest.raises(SiteFailed, match=r"new\.js"):
        make_local(tmp_path, cache)


def test_a_page_that_lacks_one_is_refused(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "index.html").write_text(index_page([name for name, _, _ in site._LIBRARIES][1:]))
    with pytest.raises(SiteFailed, match=r"jquery-3\.3\.1"):
        make_local(tmp_path, cache)


def test_without_npm_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "index.html").write_text(index_page([name for name, _, _ in site._LIBRARIES]))
    with pytest.raises(SiteFailed, match="npm is not installed"):
        make_local(tmp_path, tmp_path / "empty")


def row(value: float, commit: int, **fields: str) -> Row:
    return Row(
        suite="asv",
        benchmark=fields.pop("benchmark", "loads.Profile.track_throughput"),
        unit=fields.get("unit", "MB/s"),
        better=fields.get("better", "higher"),
        value=value,
        samples=1,
        time=f"2026-11-0{commit}T01:00:00Z",
        machine=fields.get("machine", "vm-1"),
        commit=f"{commit:040x}",
        commit_time=f"2026-11-0{commit}T00:00:00Z",
        profile=fields.get("profile", ""),
        parameters={"batch_bytes": "16384", "environment": "virtualenv"},
    )


def cells(text: str) -> list[list[str]]:
    """Text of every cell in the table's body."""
    lines = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody>")[2], re.DOTALL)
    return [
        [
            re.sub(r"<svg.*?</svg>|<[^>]*>", "", cell, flags=re.DOTALL)
            for cell in re.findall(r"<td.*?</td>", line, re.DOTALL)
        ]
        for line in lines
    ]


def test_machines_and_profiles_are_columns_and_the_newest_commit_counts() -> None:
    rows = [
        row(300.0, 2, profile="generic"),
        row(100.0, 1, profile="generic"),
        row(600.0, 2, profile="auto", machine="vm-2"),
    ]
    text = page(rows)
    assert cells(text) == [["loads.Profile.track_throughput", "batch_bytes 16384", "MB/s", "300", "600 &times;2.00"]]
    assert text.count("<svg") == 1, "one column has a history of two commits"
    assert text.index("vm-1") < text.index("vm-2")


def test_less_is_better_where_it_is() -> None:
    rows = [
        row(200.0, 1, unit="us", better="lower"),
        row(100.0, 1, unit="us", better="lower", machine="vm-2"),
    ]
    assert "&times;2.00" in cells(page(rows))[0][4]


def test_names_are_text_and_no_html() -> None:
    assert "<script>" not in page([row(1.0, 1, benchmark="<script>", machine="<script>")])


def test_a_machine_is_named_beside_those_that_asv_knows(tmp_path: Path) -> None:
    known = tmp_path / "machines.json"
    for machine in ("host-1a2b3c", "host-4d5e6f", "host-1a2b3c"):
        name_machine(Context(machine=machine, cpu="A CPU", cores=2, ram_bytes=4096, kernel="6.1"), known)
    machines = json.loads(known.read_text())
    assert machines.keys() == {"version", "host-1a2b3c", "host-4d5e6f"}
    found = machines["host-4d5e6f"]
    assert (found["machine"], found["cpu"], found["num_cpu"], found["ram"]) == ("host-4d5e6f", "A CPU", "2", "4")
