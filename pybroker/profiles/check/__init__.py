"""Compares this machine with what a broker wants, and says what to do. Looks, and changes nothing."""

from __future__ import annotations

from pybroker.profiles.check.finding import Finding, Status
from pybroker.profiles.check.kernel import check_kernel
from pybroker.profiles.check.memory import check_memory
from pybroker.profiles.check.probe import Probe
from pybroker.profiles.check.storage import check_storage
from pybroker.profiles.check.tail_rings import check_tail_rings
from pybroker.profiles.choice import Choice

__all__ = ["Finding", "Probe", "Status", "check"]


def check(choice: Choice, probe: Probe | None = None) -> list[Finding]:
    """Everything that is looked at, the disks first. Without `probe` the kernel's version has to do."""
    machine = choice.machine
    return [
        *check_storage(machine, None if choice.medium is None else choice.medium.outranks),
        *check_tail_rings(choice),
        *check_kernel(machine, probe),
        *check_memory(machine),
    ]
