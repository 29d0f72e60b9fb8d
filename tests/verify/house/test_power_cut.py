"""50 power cuts under load, on a drive of ours that forgets what no flush had reached: the log recovers to a prefix
with everything in it that was synced or, with durable acks, acknowledged or read, and the metadata to everything that
was acknowledged. 20 more while hot logs share the drive's flushes: there, too, is what was acknowledged.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.crash.crowded_cuts import DISK_BYTES, CrowdedRun
from tests.harness.crash.engines import DIRECT, PACED
from tests.harness.crash.power_cuts import PowerRun
from tests.harness.crash.power_disk import PowerDisk, missing
from tests.harness.fixtures import backends
from tests.harness.rounds import Rounds

REPOSITORY = Path(__file__).resolve().parents[3]
CUTS = 50
SEED = 50


def _powerfs() -> Path:
    """The built program; skips the test where it cannot run."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    subprocess.run(
        ["make", "-C", str(REPOSITORY / "tests" / "crash" / "powerfs")], check=True, stdout=subprocess.DEVNULL
    )
    return REPOSITORY / "build" / "powerfs" / "powerfs"


@pytest.mark.parametrize("engines", [(PACED,), (DIRECT,)], ids="-".join)
def test_what_was_synced_survives_50_power_cuts(tmp_path: Path, engines: tuple[str, ...], rounds: Rounds) -> None:
    with PowerDisk(_powerfs()) as disk:
        with PowerRun(disk, tmp_path, seed=SEED, backends=backends(), engines=engines) as run:
            for each in rounds.left(CUTS, SEED):
                with each:
                    each.facts |= run.cut(each.number, each.seed)
        print(run.report)
        with rounds.closing():
            disk.unmount()
            disk.check_file_system()
    rounds.require_all()
    # The cuts must have bitten, and the syncs must have saved something.
    assert rounds.total("unflushed") - rounds.total("kept") > 1000
    for each_count in ("compacted", "deleted", "synced", "promised", "seen"):
        assert rounds.total(each_count) > 1000, each_count
    assert rounds.total("lost") > 0


@pytest.mark.skipif("io_uring" not in backends(), reason="without io_uring no reactor makes durable writes")
def test_what_shared_a_flush_survives_50_power_cuts(tmp_path: Path, rounds: Rounds) -> None:
    with PowerDisk(_powerfs(), DISK_BYTES) as disk:
        with CrowdedRun(disk, tmp_path) as run:
            for each in rounds.left(CUTS, SEED):
                with each:
                    each.facts |= run.cut(each.seed)
        print(run.report)
        with rounds.closing():
            disk.unmount()
            disk.check_file_system()
    rounds.require_all()
    assert rounds.total("shared") > 1000
    assert rounds.total("unflushed") > 1000
