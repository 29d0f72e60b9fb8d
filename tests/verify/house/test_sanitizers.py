"""What the client matrix relies on when it runs on sanitizers: that they are there, and what they find is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.sanitizer import PACKAGE_DIR, Sanitized

PREAMBLE = """
import ctypes
from pybroker.native import _pybroker as extension
print(extension.__file__)
data = extension.ffi.new("uint8_t[]", 40)
extension.lib.pb_native_crc32c(0, data, 40)
"""
# One byte more than Python's buffer has; memory that nobody knows of any more.
READ_TOO_FAR = "extension.lib.pb_native_crc32c(0, data, 41)"
LEAK = "c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.malloc(1234)"


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("", None),
        (READ_TOO_FAR, "heap-buffer-overflow"),
        (LEAK, "Direct leak of 1234 byte"),
    ],
)
def test_what_the_extension_does_wrong_is_reported(fault: str, found: str | None, tmp_path: Path) -> None:
    sanitized = Sanitized(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + fault],
        env={**os.environ, **sanitized.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert Path(done.stdout.strip()).is_relative_to(PACKAGE_DIR), done
    assert (done.returncode == 0) == (found is None)
    assert sanitized.reports() == "" if found is None else found in sanitized.reports()
