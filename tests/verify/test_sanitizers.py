"""What the client matrix relies on when it runs on sanitizers: that they are there, and what they find is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pybroker.testing.sanitizer import PACKAGE_DIR, Sanitized

# One byte more than Python's buffer has.
READ_TOO_FAR = """
from pybroker.native import _pybroker as extension
data = extension.ffi.new("uint8_t[]", 40)
print(extension.__file__)
extension.lib.pb_native_crc32c(0, data, 40)
print("fine so far", flush=True)
extension.lib.pb_native_crc32c(0, data, 41)
"""


def test_reading_beyond_a_buffer_of_pythons_is_reported(tmp_path: Path) -> None:
    sanitized = Sanitized(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", READ_TOO_FAR],
        env={**os.environ, **sanitized.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    file, *rest = done.stdout.splitlines()
    assert Path(file).is_relative_to(PACKAGE_DIR), file
    assert rest == ["fine so far"]
    assert done.returncode != 0
    assert "heap-buffer-overflow" in sanitized.reports() and "pb_native_crc32c" in sanitized.reports()
