"""CRC32C inside C beside ISA-L and the `crc32c` and `google-crc32c` wheels: `python -m bench.micro.crc32c`.

GiB/s by length, the best of several rounds in which all take turns: whatever else the machine does only ever slows one
down. Every result is compared first. The status is 1 when a promise fails; with `--quick` only the results count.

C calls all functions by address. They are those of our shared object, ISA-L's `crc32_iscsi`, and the C functions
exported by the extensions of the wheels, which their Python functions call.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import mmap
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.report import Row, Section, save, text_table, verdict

ROOT = Path(__file__).resolve().parents[2]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LENGTHS = (64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)
# The promises. The one about the wheels is for CPUs with VPCLMULQDQ.
WHEELS_LIMIT, WHEELS_FROM = 1.5, 4 * KIB
ISAL_LIMIT = 0.9
FUSED_LIMIT, FUSED_LENGTHS = 1.4, (16 * KIB, 64 * KIB, 256 * KIB)
# As in perf_crc32c.c.
_CRC, _CRC_COPY, _COPY, _COPY_THEN_CRC, _EXTEND, _UPDATE, _ISCSI = range(7)
_ISAL, _WHEELS = "isa-l", ("wheel crc32c", "wheel google-crc32c")
_APART, _FUSED = "memcpy, then crc", "fused"


class _Job(ctypes.Structure):
    """`perf_job` of perf_crc32c.c."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("destination", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("length", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("crc", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class Contender:
    """One row of the table. `implementation` is ours to select first, `function` another's address."""

    name: str
    kind: int
    implementation: str | None = None
    function: int | None = None


def _address(library: ctypes.CDLL, symbol: str) -> int:
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    return address


def _google_library() -> Path:
    """The wheel carries Google's library beside its extension, under a name with a checksum."""
    files = importlib.metadata.files("google-crc32c") or []
    for file in files:
        if "libcrc32c" in file.name and ".so" in file.name:
            return Path(str(file.locate()))
    raise RuntimeError("the google-crc32c wheel has no libcrc32c in it: is it one with the C extension?")


def _others() -> list[Contender]:
    import crc32c
    from crc32c import _crc32c  # loading it has it look for the CPU's instruction

    if not crc32c.hardware_based:
        raise RuntimeError("the crc32c wheel does not use this CPU's instructions: nothing to compare with")
    return [
        Contender(_ISAL, _ISCSI, function=_address(ctypes.CDLL("libisal.so.2"), "crc32_iscsi")),
        Contender(_WHEELS[0], _UPDATE, function=_address(ctypes.CDLL(_crc32c.__file__), "_crc32c_hw_adler")),
        Contender(_WHEELS[1], _EXTEND, function=_address(ctypes.CDLL(str(_google_library())), "crc32c_extend")),
    ]


class Bench:
    """The buffers, and our shared object. Pages are touched before anything is measured."""

    def __init__(self) -> None:
        """Build the shared object and load it."""
        subprocess.run(["make", "-s", "-C", "csrc", "B=build/native", "perf-crc32c"], cwd=ROOT, check=True)
        self._library = ctypes.CDLL(str(ROOT / "build/native-low/perf/libperf_crc32c.so"))
        self._library.perf_crc32c_names.restype = ctypes.POINTER(ctypes.c_char_p)
        self._library.perf_crc32c_run.restype = ctypes.c_uint64
        self._buffers = [mmap.mmap(-1, LENGTHS[-1]) for _ in range(2)]
        pattern = bytes((7 * i + (i >> 8)) & 0xFF for i in range(64 * KIB))
        for buffer in self._buffers:
            buffer.write(pattern * (LENGTHS[-1] // len(pattern)))
        self._places = [ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in self._buffers]

    def names(self) -> list[str]:
        """Our implementations that this CPU runs, fastest first."""
        names = self._library.perf_crc32c_names()
        found: list[str] = []
        while names[len(found)] is not None:
            found.append(names[len(found)].decode())
        return found

    def run(self, contender: Contender, length: int, calls: int) -> tuple[float, int]:
        """Nanoseconds of one call, and the CRC it gave."""
        selected = (contender.implementation or self.names()[0]).encode()
        if not self._library.perf_crc32c_select(selected):
            raise RuntimeError(f"this CPU does not run {contender.implementation}")
        source, destination = self._places
        job = _Job(contender.function, destination, source, length, calls, contender.kind, 0)
        taken_ns: int = self._library.perf_crc32c_run(ctypes.byref(job))
        return taken_ns / calls, job.crc


def contenders(names: Sequence[str]) -> list[Contender]:
    """Ours, each implementation by itself; then what can be done with the fastest; then the others."""
    ours = [Contender(name, _CRC, implementation=name) for name in names]
    copies = [
        Contender("memcpy", _COPY),
        Contender(_APART, _COPY_THEN_CRC),
        Contender(_FUSED, _CRC_COPY),
    ]
    return [*ours, *copies, *_others()]


def measure(bench: Bench, rounds: int, round_ms: float) -> dict[str, dict[int, float]]:
    """GiB/s of each contender by length."""
    everyone = contenders(bench.names())
    table: dict[str, dict[int, float]] = {contender.name: {} for contender in everyone}
    for length in LENGTHS:
        crcs = {contender.name: bench.run(contender, length, 1)[1] for contender in everyone if contender.kind != _COPY}
        if len(set(crcs.values())) != 1:
            raise RuntimeError(f"CRCs of {length} bytes differ: {crcs}")
        best_ns = {contender.name: bench.run(contender, length, 1)[0] for contender in everyone}
        for _ in range(rounds):
            for contender in everyone:
                calls = max(1, int(round_ms * 1e6 / best_ns[contender.name]))
                taken_ns = bench.run(contender, length, calls)[0]
                best_ns[contender.name] = min(best_ns[contender.name], taken_ns)
        for name, ns in best_ns.items():
            table[name][length] = length / GIB / (ns / 1e9)
    return table


def promises(table: Mapping[str, Mapping[int, float]]) -> dict[str, Section]:
    """Each promise at each length as a row."""
    ours = next(iter(table))
    wheels = {length: max(table[wheel][length] for wheel in _WHEELS) for length in LENGTHS}

    def row(what: str, length: int, figures: Mapping[int, float], theirs: Mapping[int, float], limit: float) -> Row:
        return Row(f"{what}, {_size(length)}", "GiB/s", figures[length], theirs[length], limit, at_least=True)

    isal = [row("crc beside ISA-L", length, table[ours], table[_ISAL], ISAL_LIMIT) for length in LENGTHS]
    long = [length for length in LENGTHS if ours == "avx512" and length >= WHEELS_FROM]
    beside_wheels = [row("crc beside wheels", length, table[ours], wheels, WHEELS_LIMIT) for length in long]
    fused = [row("copy and crc", length, table[_FUSED], table[_APART], FUSED_LIMIT) for length in FUSED_LENGTHS]
    return {
        "ISA-L": Section(ours, _ISAL, isal),
        "wheels": Section(ours, "faster wheel", beside_wheels),
        "fused": Section(_FUSED, _APART, fused),
    }


def _size(length: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if length >= unit:
            return f"{length // unit} {name}"
    return f"{length} B"


def table_text(table: Mapping[str, Mapping[int, float]]) -> str:
    """The figures for a terminal."""
    lines = [f"{'GiB/s':20}" + "".join(f"{_size(length):>9}" for length in LENGTHS)]
    lines += [f"{name:20}" + "".join(f"{row[length]:9.1f}" for length in LENGTHS) for name, row in table.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; see the module's text for the status."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.crc32c", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a moment of each: a check of the benchmark itself")
    parser.add_argument("--output", type=Path, default=Path("build/bench/crc32c.json"))
    options = parser.parse_args(arguments)
    table = measure(Bench(), *((1, 0.02) if options.quick else (25, 2.0)))
    print(table_text(table))
    sections = promises(table)
    for section in sections.values():
        print(f"\n{text_table(section.rows, section.ours, section.theirs)}")
    facts: dict[str, dict[str, object]] = {name: {"gib_per_s": figures} for name, figures in table.items()}
    for wheel in _WHEELS:
        facts[wheel]["version"] = importlib.metadata.version(wheel.removeprefix("wheel "))
    save(options.output, sections, facts, [], ROOT)
    return verdict(sections, options.output, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
