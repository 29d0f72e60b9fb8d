"""Lets these tests import the helpers beside them, and makes directories for tail rings."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def rings() -> Iterator[Path]:
    """A directory on tmpfs, which rings need."""
    path = Path("/dev/shm") / f"pybroker-test-{uuid4().hex}"
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)
