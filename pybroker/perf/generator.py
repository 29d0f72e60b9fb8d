"""Where the load generator is: a program beside this file in an installed package, or built in a checkout.

Can fail: `GeneratorMissing`, with what to do about it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

#: Names another program instead.
VARIABLE = "PYBROKER_PBLOAD"
_INSTALLED = Path(__file__).with_name("pbload")
_CHECKOUT = Path(__file__).resolve().parents[2]


class GeneratorMissing(RuntimeError):
    """There is no load generator here that could run."""


def _built(checkout: Path) -> Path:
    """The checkout's, brought up to date."""
    try:
        done = subprocess.run(
            ["make", "-s", "-C", str(checkout / "bench" / "load")], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise GeneratorMissing(
            f"make is missing, which builds the load generator; run {checkout}/scripts/bootstrap"
        ) from None
    if done.returncode != 0:
        raise GeneratorMissing(
            f"the load generator does not build (make -C bench/load); {checkout}/scripts/bootstrap installs what it "
            f"needs:\n{done.stderr.strip()[-2000:]}"
        )
    return checkout / "build" / "load" / "pbload"


def find_generator() -> Path:
    """Its path. `PYBROKER_PBLOAD`, or else the package's own, or else the checkout's, which is built if need be."""
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise GeneratorMissing(f"{VARIABLE} is {named!r}, which is no program that can be run")
        return Path(named)
    if _INSTALLED.is_file():
        return _INSTALLED
    if (_CHECKOUT / "bench" / "load" / "Makefile").is_file():
        return _built(_CHECKOUT)
    raise GeneratorMissing(
        f"this pybroker was installed without its load generator. Install a wheel that `make wheel` made, or build "
        f"pbload from bench/load of the sources and name it in {VARIABLE}"
    )
