"""Whether this broker serves what a cluster has finalised (KIP-584). Pure."""

from __future__ import annotations

from pybroker.metadata import features
from pybroker.metadata.image import MetadataImage
from pybroker.quorum.errors import QuorumError


def check_served(image: MetadataImage) -> None:
    """QuorumError, with the command that helps, for features or levels that this broker lacks."""
    lowest, highest = features.SUPPORTED[features.METADATA_VERSION]
    level = image.metadata_version
    if not lowest <= level <= highest:
        raise QuorumError(
            f"the cluster has finalised metadata.version {level}; this broker serves {lowest} to {highest}. A newer "
            "pybroker may serve it; a metadata.version cannot be taken back once records of it may be in the log"
        )
    lacking = sorted(features.unserved(image.feature_levels).items())
    if lacking:
        named = ", ".join(f"{name}={level}" for name, level in lacking)
        options = " ".join(f"--feature {name}={features.SUPPORTED.get(name, (0, 0))[1]}" for name, _ in lacking)
        raise QuorumError(
            f"the cluster has finalised {named}, which this broker does not serve. To let it join, run "
            f"`kafka-features.sh --bootstrap-controller HOST:PORT downgrade {options}`; its users lose these features"
        )
