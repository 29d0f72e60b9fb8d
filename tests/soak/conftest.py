"""What tests that run for hours share: their rounds are written down one by one."""

from tests.harness.rounds import rounds

__all__ = ["rounds"]
