"""What tests that run for hours share: their rounds are written down one by one."""

from pybroker.testing.rounds import rounds

__all__ = ["rounds"]
