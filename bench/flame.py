"""A flame graph of a broker under load: `python -m bench.flame`, or `make flame`.

Starts a broker of ours, loads it with pbload (producers, a reader, and metadata requests, which Python answers), has
`pybroker perf flame` sample it meanwhile, and removes the data. The status is that of `pybroker perf flame`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pybroker.perf import lifetime
from pybroker.perf.generator import find_generator
from tests.harness.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
_OVERRIDES = {"log.segment.bytes": str(64 << 20), "log.retention.bytes": str(256 << 20)}
_LOADS = (
    ("produce", "--topic", "flame", "--batch-bytes", "16k", "--connections", "4", "--partitions", "4"),
    ("fetch", "--topic", "flame", "--connections", "2", "--max-bytes", "256k"),
    ("metadata", "--topic", "flame", "--topics", "10", "--connections", "2"),
)


def _load(pbload: Path, words: Sequence[str], port: int, seconds: float) -> subprocess.Popen[bytes]:
    command = [str(pbload), *words, "--port", str(port), "--seconds", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=lifetime.environment())


def main(arguments: Sequence[str] | None = None) -> int:
    """Load, sample, stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.flame", description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--engine", default="direct", help="append engine")
    parser.add_argument("--data", type=Path, help="where the log dir is made; a temporary directory otherwise")
    parser.add_argument("--native", action="store_true", help="as of `pybroker perf flame`")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "flame.svg")
    options = parser.parse_args(arguments)
    pbload = find_generator()
    overrides = {**_OVERRIDES, "pybroker.append.engine": options.engine}
    with (
        tempfile.TemporaryDirectory(prefix="pybroker-flame-", dir=options.data) as directory,
        BrokerProcess(Path(directory, "data"), overrides=overrides) as broker,
    ):
        # The topics exist and have bytes before anything is sampled.
        subprocess.run([*map(str, (pbload, *_LOADS[0], "--port", broker.port, "--bytes", "16m"))], check=True)
        loads = [_load(pbload, words, broker.port, options.seconds + 3) for words in _LOADS]
        native = ["--native"] if options.native else []
        what = ["--pid", str(broker.pid), "--seconds", str(options.seconds), "--output", str(options.output), *native]
        status = subprocess.run([sys.executable, "-m", "pybroker", "perf", "flame", *what], check=False).returncode
        for load in loads:
            load.terminate()
            load.wait()
    return status


if __name__ == "__main__":
    sys.exit(main())
