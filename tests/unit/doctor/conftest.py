"""What is examined here: a configuration over a copy of a log dir, with each thing that is wrong put there for real."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.doctor.examine import examine
from pybroker.doctor.finding import Finding
from pybroker.doctor.subject import make_subject
from pybroker.metadata.bootstrap import open_log_dirs
from pybroker.storage.files import clean_shutdown
from tests.harness.process import free_port

sys.path.insert(0, str(Path(__file__).parent))

from patients import Examine  # the path to it has to be there first

KAFKA_DIR = Path(__file__).parents[1] / "storage" / "offline" / "data" / "kafka-4.3.0"


@pytest.fixture
def examined() -> Examine:
    """Settings to the findings by kind; the worst of a kind."""

    def call(
        *overrides: str, properties: Path | None = None, bootstrap: tuple[str, int] | None = None
    ) -> dict[str, Finding]:
        port = free_port()
        name = None if properties is None else str(properties)
        settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", "pybroker.metrics.listener=127.0.0.1:0", *overrides]
        config = BrokerConfig.load(name, settings)
        found: dict[str, Finding] = {}
        for each in examine(make_subject(config, name, settings, bootstrap)):
            found.setdefault(each.kind, each)
        return found

    return call


@pytest.fixture
def kafka_dir(tmp_path: Path) -> Path:
    """A log dir with logs, which was stopped in order."""
    return Path(shutil.copytree(KAFKA_DIR, tmp_path / "kafka"))


@pytest.fixture
def new_dir(tmp_path: Path) -> Path:
    """A log dir without topics, as this broker sets it up."""
    path = tmp_path / "data"
    open_log_dirs([path], 1, 1_700_000_000_000).release()
    clean_shutdown.write(path, 1)
    return path
