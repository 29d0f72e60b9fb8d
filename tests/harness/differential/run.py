"""A differential run: both brokers started once, histories played to both at the same time, and what came of it.

`python -m tests.harness.differential.run` plays random ones, or saved ones by their files; a history whose outcomes
differ is shrunk and saved. The status is 1 when any does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from tests.harness.broker import BrokerProcess
from tests.harness.differential.comparison import differences
from tests.harness.differential.generate import POLICIES, SETTLE_AGES_MS, histories
from tests.harness.differential.history import History, load
from tests.harness.differential.playing import STILL_SECONDS, Outcome, Player
from tests.harness.differential.shrinking import shrink
from tests.harness.differential.side import OVERRIDES, Side
from tests.harness.kafka import KafkaBroker

#: What follows each round and, last, the end.
RESTARTS = ("clean", "kill", "", "clean")


_SHOWN = 20
#: How often Apache Kafka plays again what came out differently: when its cleaner passes decides what it cleans.
_REPEATS = 12


@dataclass(frozen=True)
class Failure:
    """A history and what differs."""

    history: History
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.history.name}: " + "; ".join(self.differences[:6])[:2000]


class DifferentialRun:
    """Both brokers, as a context manager. `directory` is for their log dirs; `reference_only` puts Apache Kafka on both
    sides, which proves the comparison itself."""

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        reference_only: bool = False,
        still_seconds: float = STILL_SECONDS,
    ) -> None:
        self._count = 0
        self._still_seconds = still_seconds
        ours = {**OVERRIDES, **(overrides or {})}
        makers: list[Callable[[], BrokerProcess | KafkaBroker]] = [
            (lambda: KafkaBroker(directory / "ours", overrides=OVERRIDES, heap_megabytes=512))
            if reference_only
            else (lambda: BrokerProcess(directory / "ours", overrides=ours)),
            lambda: KafkaBroker(directory / "theirs", overrides=OVERRIDES, heap_megabytes=512),
        ]
        with ThreadPoolExecutor(2) as pool:
            brokers = list(pool.map(lambda make: make(), makers))
        self._sides = [Side("ours", brokers[0]), Side("Apache Kafka", brokers[1])]

    def play(
        self, wanted: Sequence[History], restarts: Sequence[str] = RESTARTS, settles: int = len(SETTLE_AGES_MS)
    ) -> list[Failure]:
        """Those whose outcomes differ, and are not what Apache Kafka comes to another time. `restarts` and `settles` as
        in `Player.run`."""
        start_ms = int(time.time() * 1000)

        def one(side: Side, histories: Sequence[History]) -> list[Outcome]:
            prefix = f"run-{self._count}"
            return Player(side, histories, start_ms, prefix, self._still_seconds).run(restarts, settles)

        self._count += 1
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(one, self._sides, [wanted, wanted])
        suspects = [
            (history, our, found)
            for history, our, their in zip(wanted, ours, theirs, strict=True)
            if (found := differences(history, our, their))
        ]
        if not suspects:
            return []
        self._count += 1
        again = [replace(each, name=f"{each.name}-{n}") for each, _, _ in suspects for n in range(_REPEATS)]
        outcomes = one(self._sides[1], again)
        return [
            Failure(history, tuple(found))
            for number, (history, our, found) in enumerate(suspects)
            if all(differences(history, our, o) for o in outcomes[number * _REPEATS : (number + 1) * _REPEATS])
        ]

    def shrink(self, failure: Failure, restarts: Sequence[str] = RESTARTS) -> Failure:
        """The smallest history found that still differs."""
        found = {failure.history: failure}

        def failing(candidates: Sequence[History]) -> list[History]:
            for each in self.play(candidates, restarts):
                found[each.history] = each
            return [each for each in candidates if each in found]

        return found[shrink(failure.history, failing)]

    def __enter__(self) -> DifferentialRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for side in self._sides:
            side.close()
            side.broker.__exit__(kind, error, trace)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.differential.run", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="saved histories; none: random ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--no-transactions", action="store_true")
    parser.add_argument("--reference-only", action="store_true", help="Apache Kafka on both sides")
    parser.add_argument("--save", type=Path, help="where to put the shrunk histories that differ")
    options = parser.parse_args(arguments)
    wanted = [load(path) for path in options.files] or histories(
        options.seed, options.count, options.policies, transactions=not options.no_transactions
    )
    directory = Path(tempfile.mkdtemp(prefix="differential-"))
    print(f"log dirs: {directory}", flush=True)
    with DifferentialRun(directory, reference_only=options.reference_only) as run:
        started = time.monotonic()
        failures = run.play(wanted)
        print(f"{len(failures)} of {len(wanted)} histories differ, {time.monotonic() - started:.0f} s", flush=True)
        for failure in failures[:_SHOWN]:
            print(failure, flush=True)
        for failure in failures[:3] if options.save else []:
            smaller = run.shrink(failure)
            path = options.save / f"{smaller.history.name}.json"
            path.write_text(smaller.history.as_json())
            print(f"{path} ({smaller.history.operation_count} operations): {smaller}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
