"""What the tests of the doctor share: findings by kind, and which of them are of the machine."""

from __future__ import annotations

from collections.abc import Callable

from pybroker.doctor.finding import Finding

#: What a machine may have that runs these tests, and no test is about.
OF_THE_MACHINE = {
    *("file-system", "log-dir-in-memory", "mount-options", "scheduler", "control-group", "kernel", "io-uring-refused"),
    *(
        "no-direct-io",
        "clock-source",
        "writeback",
        "open-files",
        "disk-nearly-full",
        "inodes",
        "tail-ring-storage",
        "tail-rings-unclaimed",
        "tail-rings-waiting",
        "tail-rings-orphaned",
        "advertised-unresolved",
    ),
}
Examine = Callable[..., dict[str, Finding]]


def faults(found: dict[str, Finding]) -> set[str]:
    """Kinds that make the exit status 1, those of the machine left out."""
    return {kind for kind, each in found.items() if each.severity.is_fault} - OF_THE_MACHINE
