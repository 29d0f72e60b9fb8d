"""The errors between this broker and its controllers. Every text is written for the operator."""

from __future__ import annotations

from pybroker.metadata.errors import MetadataError


class QuorumError(MetadataError):
    """This broker cannot be part of that quorum, or not any longer: it must stop. The text says why and what to do."""


class QuorumUnavailable(TimeoutError):
    """No active controller has answered in time. The same may succeed later."""
