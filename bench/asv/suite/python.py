"""Python by itself: message codecs, imports, and the memory they take."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any


class Messages:
    """Metadata of a hundred partitions."""

    def setup(self) -> None:
        """Make the message, and its codec with it."""
        try:
            messages: Any = importlib.import_module("pybroker.protocol.messages")
            kind = messages.MetadataResponse
            partitions = [
                kind.MetadataResponsePartition(
                    partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
                )
                for index in range(100)
            ]
            topic = kind.MetadataResponseTopic(name="orders", topic_id=bytes(16), partitions=partitions)
            self.message = kind(brokers=[], cluster_id="cluster", controller_id=1, topics=[topic])
            self.encoded = self.message.encode(12)
        except (ImportError, AttributeError, TypeError) as error:
            raise NotImplementedError(f"this commit has other messages: {error}") from error
        self.decode = kind.decode

    def time_encode(self) -> None:
        """A response."""
        self.message.encode(12)

    def time_decode(self) -> None:
        """The same."""
        self.decode(12, self.encoded)

    def peakmem_messages(self) -> None:
        """Memory of a process that holds the message in both forms."""


class Command:
    """The command line."""

    number = 1
    timeout = 60

    def time_version(self) -> None:
        """`pybroker --version`, a process of its own."""
        subprocess.run([sys.executable, "-m", "pybroker", "--version"], stdout=subprocess.DEVNULL, check=True)
