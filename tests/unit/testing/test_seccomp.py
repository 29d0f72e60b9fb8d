"""The filter that tests put on brokers refuses what it is told to, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pybroker.testing.seccomp import refuse

SCRIPT = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    print(os.pwritev(file.fileno(), [b"x"], 0))
    for flags in (0, os.RWF_NOWAIT):
        try:
            print(os.preadv(file.fileno(), [bytearray(1)], 0, flags))
        except OSError as error:
            print(error.strerror)
"""


def test_a_call_is_refused_for_its_flag_alone() -> None:
    command = [sys.executable, "-m", "pybroker.testing.seccomp", "cachestat=ENOSYS", "preadv2:RWF_NOWAIT=EOPNOTSUPP"]
    done = subprocess.run([*command, "--", sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1", "1", "Operation not supported"]


@pytest.mark.parametrize("rule", ["open=EPERM", "cachestat", "cachestat=NO", "preadv2:RWF_SYNC=EPERM"])
def test_a_rule_that_is_none(rule: str) -> None:
    with pytest.raises(ValueError, match="is no rule"):
        refuse([rule])
