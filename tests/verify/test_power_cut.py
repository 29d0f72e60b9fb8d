"""50 power cuts under load, on a drive of ours that forgets what no flush had reached: the log recovers to a prefix
with everything in it that was synced or, with durable acks, acknowledged or read, and the metadata to everything that
was acknowledged.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pybroker.testing.crash.engines import DIRECT, PACED
from pybroker.testing.crash.power_cuts import PowerRun
from pybroker.testing.crash.power_disk import PowerDisk, missing
from pybroker.testing.fixtures import backends

REPOSITORY = Path(__file__).resolve().parents[2]
CUTS = 50


@pytest.mark.parametrize("engines", [(PACED,), (DIRECT,)], ids="-".join)
def test_what_was_synced_survives_50_power_cuts(tmp_path: Path, engines: tuple[str, ...]) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    subprocess.run(
        ["make", "-C", str(REPOSITORY / "tests" / "crash" / "powerfs")], check=True, stdout=subprocess.DEVNULL
    )
    with PowerDisk(REPOSITORY / "build" / "powerfs" / "powerfs") as disk:
        with PowerRun(disk, tmp_path, seed=50, backends=backends(), engines=engines) as run:
            for _ in range(CUTS):
                run.cut()
        print(run.report)
        disk.unmount()
        disk.check_file_system()
        report = run.report
    assert len(report.cuts) == CUTS
    # The cuts must have bitten, and the syncs must have saved something.
    assert sum(cut.unflushed_count - cut.kept_count for cut in report.cuts) > 1000
    assert report.compacted_count > 1000 and report.deleted_count > 1000
    assert report.lost_count > 0 and report.synced_count > 1000
    assert report.promised_count > 1000 and report.seen_count > 1000
