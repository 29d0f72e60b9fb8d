"""A client that sends single requests of any API and version: for tests that look at what a broker answers exactly.

Blocking, one request at a time, on one connection. Fails as `Connection` does.
"""

from __future__ import annotations

from pybroker.client.connection import Connection
from pybroker.protocol import messages as m

#: The last version of Fetch that names topics; later ones have their ids.
FETCH_VERSION = 12


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, isolation_level: int = 0, max_bytes: int = 1 << 20, wait_ms: int = 0
) -> m.FetchRequest:
    """Asks one partition, and is answered at once, maybe with nothing, or when something has come in `wait_ms`."""
    wanted = m.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return m.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms > 0 else 0,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


class ProtocolClient(Connection):
    """A connection to `port` on loopback; a context manager."""

    def __init__(self, port: int, *, client_id: str = "protocol-client", timeout_seconds: float = 60.0) -> None:
        super().__init__("127.0.0.1", port, client_id=client_id, timeout_seconds=timeout_seconds)

    def fetch(self, topic: str, offset: int, **wanted: int) -> m.FetchResponse.PartitionData:
        """The partition's row of the answer to a `fetch_request`."""
        (response,) = self.call(fetch_request(topic, offset, **wanted), FETCH_VERSION).responses
        row: m.FetchResponse.PartitionData = response.partitions[0]
        return row
