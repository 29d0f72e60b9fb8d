"""`LookCounter`: slices of the loop by a clock that goes on with every look at it, so that tests can count them."""

from __future__ import annotations

import asyncio

from pybroker import turns

_LOOKS_PER_SLICE = 10
MOST_LOOKS = 2 * _LOOKS_PER_SLICE + 6
"""A round has the slice of what has just come, and that of one who waited. Each may look once too often."""


class LookCounter:
    """Use it from the running loop on, before what takes `turns.current()` at its start. `looks` has all looks,
    `most_looks` those in the round of the loop that had the most."""

    def __init__(self) -> None:
        self.looks = 0
        self.most_looks = 0
        self._seen = 0
        loop = asyncio.get_running_loop()
        turns.install(turns.Turns(loop, self._now_ns))
        self._task = loop.create_task(self._watch())

    def _now_ns(self) -> int:
        self.looks += 1
        return self.looks * (turns.SLICE_NS // _LOOKS_PER_SLICE)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.most_looks, self._seen = max(self.most_looks, self.looks - self._seen), self.looks

    def check(self, least_looks: int) -> None:
        """AssertionError unless all was done in slices, and there were so many looks at least."""
        self._task.cancel()
        assert self.looks >= least_looks, "it was not done in slices"
        assert self.most_looks <= MOST_LOOKS, "a round had more than its slices"
