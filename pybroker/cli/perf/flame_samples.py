"""CPU samples of a running broker: perf's and py-spy's, brought together thread by thread.

perf counts CPU time and sees every thread, with the C functions and the kernel's. py-spy sees the interpreter's
functions, but no threads of C. It also hides how little CPU a waiting thread takes: most of its samples are of an event
loop in `select`. So a thread has the weight that perf gives it, and so has its waiting. It is divided by perf's stacks,
or by py-spy's when the thread runs Python.

Both run as child processes, at the same time, and write to a temporary directory. Can fail: `SamplingFailed`, with what
is missing or not allowed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pybroker.perf import lifetime

#: Frames from the root, the thread's name first, and how many samples had exactly them.
Stacks = Counter[tuple[str, ...]]

#: Bytes of the stack that perf keeps of each sample to unwind it afterwards: the C code has no frame pointers.
_STACK_BYTES = 16384
_PYTHON_THREAD = re.compile(r"thread \((?P<id>\w+)\)(?:: (?P<name>.*))?")
_FRAME = re.compile(r"\s+(?P<address>[0-9a-f]+) (?P<symbol>.*?) \((?P<file>[/\[].*)\)")
_KERNEL = "[kernel.kallsyms]"
#: C functions that threads wait in, and the standard library's files whose functions call them.
_WAITING_C = re.compile(r"epoll_p?wait|futex|sem_(?:clock|timed)?wait|pthread_cond_\w*wait")
_WAITING_PYTHON = re.compile(r"\((?:selectors|threading|queue|concurrent/futures/thread)\.py:\d+\)$")


class SamplingFailed(Exception):
    """No samples; the text says why and what to do."""


@dataclass(frozen=True)
class Sampling:
    """The process to sample, and how. `native`: have py-spy show C functions as well, for which it stops the process
    each time."""

    pid: int
    seconds: int
    frequency: int
    native: bool = False


@dataclass(frozen=True)
class Thread:
    """A thread's samples, without its name in front."""

    name: str
    stacks: Stacks


def sample(sampling: Sampling) -> Stacks:
    """Sample for so many seconds. Raises SamplingFailed."""
    perf = _find("perf", "Linux's perf is not installed: its package is linux-perf (Debian) or linux-tools (Ubuntu)")
    spy = _find("py-spy", "py-spy is not installed: pip install py-spy")
    if not Path(f"/proc/{sampling.pid}").exists():
        raise SamplingFailed(f"there is no process {sampling.pid}")
    with tempfile.TemporaryDirectory(prefix="pybroker-flame-") as directory:
        data, raw = Path(directory, "perf.data"), Path(directory, "py-spy.txt")
        c = _start(_perf_command(perf, sampling, data))
        try:
            python = _start(_spy_command(spy, sampling, raw))
            _finish(python, "py-spy", "is kernel.yama.ptrace_scope 0, or are you root?", sampling.seconds)
        finally:
            _finish(c, "perf", "is kernel.perf_event_paranoid at most 2, or are you root?", sampling.seconds)
        # Symbols of inlined functions would have it start a process for each address.
        script = subprocess.run(
            [perf, "script", "--no-inline", "-F", "comm,tid,ip,sym,dso", "-i", str(data)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if script.returncode != 0:
            raise SamplingFailed(f"perf script ended with status {script.returncode}: {_last_line(script.stderr)}")
        return merge(parse_perf(script.stdout.splitlines()), parse_spy(raw.read_text(errors="replace").splitlines()))


def _find(program: str, advice: str) -> str:
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise SamplingFailed(advice)
    return found


def _perf_command(perf: str, sampling: Sampling, output: Path) -> list[str]:
    what = ["-e", "cpu-clock", "-F", str(sampling.frequency), "--call-graph", f"dwarf,{_STACK_BYTES}"]
    return [
        perf,
        "record",
        "-q",
        *what,
        "-p",
        str(sampling.pid),
        "-o",
        str(output),
        "--",
        "sleep",
        str(sampling.seconds),
    ]


def _spy_command(spy: str, sampling: Sampling, output: Path) -> list[str]:
    how = "--native" if sampling.native else "--nonblocking"
    what = ["--threads", "--function", "--rate", str(sampling.frequency), "--duration", str(sampling.seconds)]
    return [spy, "record", how, *what, "--format", "raw", "--output", str(output), "--pid", str(sampling.pid)]


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A sampler whose command was killed would go on holding the broker up. No other thread runs here.
        preexec_fn=partial(lifetime.end_with, os.getpid()),
    )


def _finish(process: subprocess.Popen[str], name: str, question: str, seconds: int) -> None:
    try:
        output, _ = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise SamplingFailed(f"{name} did not end") from None
    if process.returncode != 0:
        raise SamplingFailed(f"{name} ended with status {process.returncode}: {_last_line(output)}; {question}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def parse_perf(lines: Iterable[str]) -> dict[int, Thread]:
    """Threads by their id from `perf script -F comm,tid,ip,sym,dso`: a line with name and id, the frames from the
    innermost on, an empty line."""
    names: dict[int, str] = {}
    stacks: defaultdict[int, Stacks] = defaultdict(Counter)
    for sample_lines in _paragraphs(lines):
        name, _, tid = sample_lines[0].strip().rpartition(" ")
        names[int(tid)] = name.strip()
        frames = [_c_frame(match) for line in sample_lines[1:] if (match := _FRAME.match(line))]
        stacks[int(tid)][tuple(reversed(frames))] += 1
    return {tid: Thread(name, stacks[tid]) for tid, name in names.items()}


def _paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def _c_frame(match: re.Match[str]) -> str:
    symbol, file = match["symbol"], match["file"]
    if file == _KERNEL:
        return f"{symbol} [kernel]"
    return f"{symbol} [{Path(file).name}]" if symbol != "[unknown]" else f"[{Path(file).name}]"


def parse_spy(lines: Iterable[str]) -> dict[int, Thread]:
    """Threads by their id from `py-spy record --threads --format raw`: frames from the root on, and a count."""
    names: dict[int, str] = {}
    stacks: defaultdict[int, Stacks] = defaultdict(Counter)
    for line in lines:
        joined, _, count = line.rpartition(" ")
        root, *frames = joined.split(";")
        match = _PYTHON_THREAD.fullmatch(root)
        if match is None:
            raise SamplingFailed(f"this version of py-spy writes what is not understood: {root!r}")
        tid = int(match["id"], 0)
        names[tid] = match["name"] or f"thread {tid}"
        stacks[tid][tuple(frames)] += int(count)
    return {tid: Thread(name, stacks[tid]) for tid, name in names.items()}


def merge(c: dict[int, Thread], python: dict[int, Thread]) -> Stacks:
    """One set of stacks with the weights of `c`: a thread's Python stacks add up to what perf counted, those that wait
    and those that do not each by themselves."""
    merged: Stacks = Counter()
    for tid, thread in c.items():
        spied = python.get(tid)
        if spied is None:
            merged.update({(thread.name, *frames): count for frames, count in thread.stacks.items()})
            continue
        for waiting in (False, True):
            total = sum(count for frames, count in thread.stacks.items() if _waits(frames) == waiting)
            alike = Counter({frames: count for frames, count in spied.stacks.items() if _waits(frames) == waiting})
            shares = _apportion(alike or spied.stacks, total)
            merged.update({(spied.name, *frames): count for frames, count in shares.items()})
    return merged


def _waits(frames: tuple[str, ...]) -> bool:
    """Whether a thread with this stack waits, or is about to: it takes little CPU, however often it is seen."""
    return any(map(_WAITING_C.search, frames)) or bool(frames and _WAITING_PYTHON.search(frames[-1]))


def _apportion(stacks: Stacks, total: int) -> Stacks:
    """`total` divided in the proportions of `stacks`, in whole samples; the largest remainders get one more."""
    seen = sum(stacks.values())
    shares = Counter({frames: count * total // seen for frames, count in stacks.items()})
    rest = total - sum(shares.values())
    by_remainder = sorted(stacks, key=lambda frames: (-(stacks[frames] * total % seen), frames))
    for frames in by_remainder[:rest]:
        shares[frames] += 1
    return +shares
