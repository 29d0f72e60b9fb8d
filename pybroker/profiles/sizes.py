"""Sizes for people."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: int | None) -> str:
    """Such as `1.5 GiB`; `unknown` for None."""
    if count is None:
        return "unknown"
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
