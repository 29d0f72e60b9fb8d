"""The C codecs of the data plane against the Python ones: same bytes at every version, same verdict on broken input.

The C sources are compiled with the address and undefined-behaviour sanitizers into a program that reads and writes
again what it is given.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from announced import announcing, arrays, sections

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.generate.__main__ import main as generate
from pybroker.protocol.generate.c_files import HOT_MESSAGES
from pybroker.protocol.loader import message_class
from pybroker.protocol.runtime import MAX_ARRAY_COUNT, MAX_TAGGED_FIELD_COUNT
from tests.harness.random_messages import RandomMessages

CSRC = Path(__file__).parents[3] / "csrc"
SOURCES = ("base/arena.c", "base/assert.c", "wire/reader.c", "wire/writer.c", "tests/wire/echo_messages.c")
ROUNDS = int(os.environ.get("PYBROKER_CODEC_ROUNDS", "3"))
EBADMSG, EMSGSIZE = 74, 90

Case = tuple[str, int, bytes]


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        pytest.skip("needs a C compiler")
    build = tmp_path_factory.mktemp("echo")
    assert generate(["c", "--out", str(build / "wire" / "generated")]) == 0
    generated = sorted((build / "wire" / "generated").glob("*.c"))
    sources = [str(CSRC / name) for name in SOURCES] + [str(path) for path in generated]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{build}", f"-I{CSRC}"]
    subprocess.run([compiler, *flags, *includes, *sources, "-o", str(build / "echo")], check=True)
    return build / "echo"


def run_echo(program: Path, cases: list[Case]) -> list[tuple[int, bytes]]:
    """(status, bytes written again) for each (message name, version, body)."""
    frames = []
    for name, version, body in cases:
        frames.append(bytes((len(name),)) + name.encode() + struct.pack(">hi", version, len(body)) + body)
    run = subprocess.run([program], input=b"".join(frames), capture_output=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    answers, position = [], 0
    while position < len(run.stdout):
        status, length = struct.unpack_from(">ii", run.stdout, position)
        answers.append((status, run.stdout[position + 8 : position + 8 + length]))
        position += 8 + length
    assert len(answers) == len(cases)
    return answers


def random_cases() -> list[Case]:
    cases = []
    for name in HOT_MESSAGES:
        versions = definitions.message(name).versions
        for version in range(versions.lowest, versions.highest + 1):
            for seed in range(ROUNDS):
                cases.append((name, version, RandomMessages(seed).message(name, version).encode(version)))
    return cases


def test_same_bytes_as_python(echo: Path) -> None:
    cases = random_cases()
    assert len(cases) >= 50 * ROUNDS
    for (name, version, body), (status, again) in zip(cases, run_echo(echo, cases), strict=True):
        assert (status, again) == (0, body), f"{name} v{version}"


def broken(source: random.Random, body: bytes) -> bytes:
    """The body cut, or with some bytes changed: often those of lengths and counts."""
    if source.random() < 0.3:
        return body[: source.randrange(len(body))]
    changed = bytearray(body)
    for _ in range(source.choice((1, 1, 2, 8))):
        changed[source.randrange(len(changed))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
    return bytes(changed)


def test_same_verdict_on_broken_input(echo: Path) -> None:
    source = random.Random(7)
    cases = [(name, version, broken(source, body)) for name, version, body in random_cases() if body for _ in range(4)]
    refused = 0
    for (name, version, body), (status, again) in zip(cases, run_echo(echo, cases), strict=True):
        where = f"{name} v{version} {body.hex()}"
        try:
            message, end = message_class(name).decode(version, body)
        except ProtocolError as error:
            # Only Python looks into strings: C carries their bytes as they are.
            assert status == -EBADMSG or "codec can't decode" in str(error), where
            refused += 1
        else:
            assert status in (0, -EMSGSIZE) and (status == 0) == (end == len(body)), where
            assert status != 0 or again == message.encode(version), where
    assert len(cases) / 10 < refused < len(cases)


def test_limits_of_every_array_and_section(echo: Path) -> None:
    """With all the bytes there that the elements need at least, the number alone decides."""
    cases: list[Case] = []
    for name in HOT_MESSAGES:
        message = definitions.message(name)
        for version in range(message.versions.lowest, message.versions.highest + 1):
            for path, most in (
                *((each, MAX_ARRAY_COUNT) for each in arrays(message, version)),
                *((each, MAX_TAGGED_FIELD_COUNT) for each in sections(message, version)),
            ):
                cases.append((name, version, announcing(name, version, path, most + 1).body))
    assert len(cases) > 200
    for (name, version, body), (status, _) in zip(cases, run_echo(echo, cases), strict=True):
        assert status == -EBADMSG, f"{name} v{version} {body.hex()}"


def test_an_array_that_grows_while_it_is_read(echo: Path) -> None:
    """Over several doublings, with arrays inside the elements."""
    topic = m.ProduceRequest.TopicProduceData
    partition = m.ProduceRequest.PartitionProduceData
    topics = [
        topic(name=f"t{number}", partition_data=[partition(index=number, records=b"r")] * (number % 3))
        for number in range(9_001)
    ]
    body = m.ProduceRequest(acks=1, timeout_ms=1, topic_data=topics).encode(9)
    assert run_echo(echo, [("ProduceRequest", 9, body)]) == [(0, body)]
