"""Measure the last commits with airspeed velocity and make the site: `python -m bench.asv.dashboard`.

Each commit is built below `build/asv`, which takes a minute or two, and measured; what has a result already is left
alone. Results of other machines, copied to `build/asv/results/<machine>`, become part of the site. With `--here` the
installed package is measured instead, as the commit that is checked out. Status: 0, or 1 when ASV failed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.asv.machines import page
from bench.asv.site import SiteFailed, make_local
from pybroker.results.context import Context, detect
from pybroker.results.reader import read, result_files
from pybroker.results.row import Row

ROOT = Path(__file__).resolve().parents[2]
_ASV = Path(sys.executable).parent / "asv"


def _configuration(directory: Path) -> Path:
    """asv.conf.json with its directories below `directory`, and no path that depends on where it lies."""
    document = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    document["repo"] = str(ROOT)
    document["benchmark_dir"] = str(ROOT / document["benchmark_dir"])
    document |= {f"{name}_dir": str(directory / name) for name in ("env", "results", "html")}
    directory.mkdir(parents=True, exist_ok=True)
    written = directory / "asv.conf.json"
    written.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return written


def _asv(configuration: Path, *words: str) -> None:
    subprocess.run([str(_ASV), "--config", str(configuration), *words], cwd=ROOT, check=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def name_machine(machine: Context, known: Path) -> None:
    """ASV takes a machine's name from the host, which clones of an image share: it gets one that they do not.

    `known` is ASV's file of machines. Its own command leaves out what it would have found itself.
    """
    facts = {
        "machine": machine.machine,
        "os": f"{platform.system()} {machine.kernel}",
        "arch": platform.machine(),
        "cpu": machine.cpu,
        "num_cpu": str(machine.cores),
        "ram": str(machine.ram_bytes // 1024),
    }
    machines = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    machines |= {machine.machine: facts, "version": 1}
    known.write_text(json.dumps(machines, indent=4), encoding="utf-8")


def measure(configuration: Path, machine: str, *, commits: int, here: bool, quick: bool, bench: str) -> None:
    """Run what of the suite `bench` matches; raises CalledProcessError when ASV fails."""
    words = ["run", "--machine", machine, "--show-stderr", "--bench", bench, *(["--quick"] if quick else [])]
    if here:
        _asv(configuration, *words, "--python=same", "--set-commit-hash", _git("rev-parse", "HEAD"))
        return
    hashes = configuration.parent / "commits"
    hashes.write_text(_git("rev-list", "--first-parent", f"--max-count={commits}", "HEAD") + "\n", encoding="utf-8")
    _asv(configuration, *words, "--skip-existing-successful", f"HASHFILE:{hashes}")


def publish(configuration: Path, machine: Context) -> Path:
    """Make the site from all results there are; its directory."""
    directory = configuration.parent
    _asv(configuration, "publish")
    html_dir = directory / "html"
    make_local(html_dir)
    found = read(result_files(directory / "results"), machine, datetime.now(UTC))
    rows = [each for each in found if isinstance(each, Row)]
    (html_dir / "machines.html").write_text(page(rows), encoding="utf-8")
    return html_dir


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then publish."""
    parser = argparse.ArgumentParser(prog="python -m bench.asv.dashboard", description=__doc__)
    parser.add_argument("--commits", type=int, default=5, help="how many of the last ones")
    parser.add_argument("--here", action="store_true", help="measure what is installed, as the commit checked out")
    parser.add_argument("--quick", action="store_true", help="each benchmark once")
    parser.add_argument("--bench", default=".", metavar="REGEX", help="those benchmarks alone whose names match")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--publish-only", action="store_true", help="make the site of the results there are")
    only.add_argument("--measure-only", action="store_true", help="make no site, for which npm would be needed")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "asv")
    options = parser.parse_args(arguments)
    subprocess.run(["make", "-s", "-C", "bench/load"], cwd=ROOT, check=True)
    configuration = _configuration(options.directory.resolve())
    machine = detect(options.directory, ROOT)
    try:
        if not options.publish_only:
            name_machine(machine, Path.home() / ".asv-machine.json")
            what = {"commits": options.commits, "here": options.here, "quick": options.quick, "bench": options.bench}
            measure(configuration, machine.machine, **what)
        if options.measure_only:
            return 0
        html_dir = publish(configuration, machine)
    except (subprocess.CalledProcessError, SiteFailed) as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 1
    print(f"{html_dir}: python -m http.server --bind 127.0.0.1 --directory {html_dir} 8000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
