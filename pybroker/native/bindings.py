"""The extension itself, checked: whoever imports `ffi` and `lib` from here talks to the C code this package is made
for.

ImportError says what to do when the extension is missing or was built from another `csrc/include/pybroker.h`.
"""

from __future__ import annotations

import importlib
from typing import Any

from pybroker.native.errors import NativeError

ABI_VERSION = 12
"""The value of PB_ABI_VERSION that this package is written against."""

try:
    # Not by an import statement: type checkers, rightly, find no source of it.
    _pybroker: Any = importlib.import_module("pybroker.native._pybroker")
except ImportError as error:
    raise ImportError(f"the extension of pybroker cannot be loaded ({error}); build it with `make build`") from error

ffi: Any = _pybroker.ffi
lib: Any = _pybroker.lib

if lib.pb_abi_version() != ABI_VERSION or lib.PB_ABI_VERSION != ABI_VERSION:
    raise ImportError(
        f"the extension of pybroker speaks ABI version {lib.pb_abi_version()}, this package version {ABI_VERSION}; "
        "build it again with `make build`"
    )


def new_failure() -> Any:
    """A pb_native_failure to pass to a call."""
    return ffi.new("pb_native_failure *")


def check(code: int, failure: Any = None, *, what: str = "") -> None:
    """Raise NativeError unless `code` is 0; the text is the failure's where there is one."""
    if code == 0:
        return
    text = ffi.string(failure.text).decode(errors="replace") if failure is not None else ""
    if not text and what:
        text = f"{what}: {NativeError(code).text}"
    raise NativeError(code, text)
