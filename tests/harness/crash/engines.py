"""Append engines that take turns in crash tests, and the tail rings of `direct`, which a loss of power takes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.harness import keeper
from tests.harness.broker import BrokerProcess

PACED = "paced"
DIRECT = "direct"


class EngineTurns:
    """The engines that a broker's lives have, one after the other, and the directory for rings, until `close`."""

    def __init__(self, engines: Sequence[str]) -> None:
        assert engines
        self._engines = engines
        self.directory = Path(tempfile.mkdtemp(prefix="pybroker-test-", dir="/dev/shm"))
        self._kept = keeper.keep("rm", "-rf", self.directory)

    def overrides(self, life: int) -> dict[str, str]:
        """Settings of the `life`-th life. With direct, each log gets a ring that is written to at all, but there are
        fewer rings than logs."""
        return {
            "pybroker.append.engine": self._engines[life % len(self._engines)],
            "pybroker.tail.ring.directory": str(self.directory),
            "pybroker.tail.ring.budget.bytes": str(256 << 20),
            "pybroker.tail.ring.hot.bytes.per.second": "0",
        }

    def begin(self, broker: BrokerProcess, life: int) -> None:
        """Before the broker starts."""
        for key, value in self.overrides(life).items():
            broker.set_override(key, value)

    def lose_power(self) -> None:
        """What was in memory is gone."""
        for path in self.directory.iterdir():
            shutil.rmtree(path)

    def close(self) -> None:
        """The end."""
        shutil.rmtree(self.directory)
        keeper.done(self._kept)
