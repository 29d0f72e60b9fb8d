"""The full sweep over the protocol: the table against Kafka's jars, and every codec test with many random messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pybroker.protocol.generate.__main__ import main as generate
from tests.harness.kafka import fetch

ROOT = Path(__file__).parents[3]
CODEC_TESTS = ("tests/unit/protocol", "tests/kafka/test_message_codecs.py")
ROUNDS = 25


def test_the_table_is_what_kafkas_jars_say() -> None:
    assert generate(["check", "--jars", str(fetch())]) == 0


def test_codecs_with_many_random_messages() -> None:
    environment = {**os.environ, "PYBROKER_CODEC_ROUNDS": str(ROUNDS)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CODEC_TESTS]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
