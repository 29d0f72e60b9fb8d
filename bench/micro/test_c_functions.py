"""Every case of `csrc/perf/`: checksums, validation, codecs, appends, look-ups, requests, the doorbell.

A round is so many calls that Python's own call does not matter, and as many on every machine, since the number is
part of what the figure is. Its seconds are those of all of them.
"""

from __future__ import annotations

from typing import Any

from bench.micro.cases import Cases

#: A hot log's ring holds what is appended to it meanwhile.
_ROUNDS = 20
#: A call of these takes hundreds of microseconds.
_SLOW = ("encode_", "decode_")


def test_c(benchmark: Any, cases: Cases, name: str) -> None:
    case = cases.by_name[name]
    calls = 10 if name.startswith(_SLOW) else 1000
    benchmark.extra_info.update(calls=calls, payload_bytes=case.payload_bytes)
    with cases.opened(case):
        benchmark.pedantic(cases.run, args=(case, calls), rounds=_ROUNDS, warmup_rounds=2)
