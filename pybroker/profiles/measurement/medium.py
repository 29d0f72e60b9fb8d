"""The kind of a disk's medium, by how fast it reads anywhere. Pure.

An arm takes milliseconds to get anywhere, flash and memory do not. Caches are not told apart from the medium: a disk's
own, a controller's, a hypervisor's.
"""

from __future__ import annotations

from pybroker.profiles.matching import FLASH, ROTATING, UNKNOWN
from pybroker.profiles.measurement.result import Conclusion

#: Half a turn of the fastest disks (15,000 a minute) is 2 ms, without any seek.
_TURNING_US = 2_000.0
_FLASH_US = 500.0
#: The caches in disks are smaller; a file that fits into one says nothing of what is behind it.
_TELLING_BYTES = 512 << 20


def judge_medium(random_read_p50_us: float | None, region_bytes: int) -> Conclusion:
    """`flash`, `rotating` or `unknown`."""
    if random_read_p50_us is None:
        return Conclusion(UNKNOWN, "reads past the page cache are refused here, so nothing can be said")
    took = f"reading 4 KiB anywhere in {region_bytes >> 20} MiB takes {random_read_p50_us:.0f} µs"
    if random_read_p50_us >= _TURNING_US:
        return Conclusion(ROTATING, f"{took}, as long as an arm needs to get there")
    if region_bytes < _TELLING_BYTES:
        return Conclusion(UNKNOWN, f"{took}, but so little may lie in a cache of the disk")
    if random_read_p50_us <= _FLASH_US:
        return Conclusion(FLASH, f"{took}: nothing that turns gets there so fast (or a large cache answers)")
    return Conclusion(UNKNOWN, f"{took}, which is neither what flash nor what a turning disk takes")
