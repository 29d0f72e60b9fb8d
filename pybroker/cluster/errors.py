"""The errors of a local cluster. Every text is written for the person at the terminal."""


class ClusterError(RuntimeError):
    """The cluster cannot be made, started or ended; the text says why and what to do."""


class ProcessFailed(ClusterError):
    """A process ended early, or did not say in time what was waited for."""


class KafkaMissing(ClusterError):
    """A program that is needed to fetch or run Apache Kafka is not installed."""
