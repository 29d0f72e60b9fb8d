"""A file system of a few MiB, to be filled, and a producer that knows what it was acknowledged meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness import keeper

_VALUE_BYTES = 10_000


@contextmanager
def mounted_disk(path: Path, size: str) -> Iterator[Path]:
    """A tmpfs of `size` (as mount takes it, "12m") on `path`, which is made. Needs root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    kept = keeper.keep("umount", path)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
        keeper.done(kept)


@contextmanager
def mounted_ext4(path: Path, size_mib: int) -> Iterator[Path]:
    """An ext4 of that size in a file beside `path`, on which it is mounted. Needs root and a loop device."""
    path.mkdir()
    image = path.with_name(f"{path.name}.ext4")
    with open(image, "wb") as file:
        file.truncate(size_mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
    kept = keeper.keep("umount", path)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
        keeper.done(kept)
        image.unlink()


def free_bytes(path: Path) -> int:
    """What is left for users."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def fill_up(path: Path) -> None:
    """Take what is left to the last block, by a file `ballast`."""
    for piece_bytes in (1 << 16, 4096, 512):
        with suppress(OSError), open(path / "ballast", "ab", buffering=0) as file:
            while True:
                file.write(bytes(piece_bytes))


class Sender:
    """Sends random values and keeps those that were acknowledged, by offset."""

    def __init__(self, bootstrap: str, topic: str = "t") -> None:
        """To partition 0 of `topic`."""
        self._bootstrap = bootstrap
        self._topic = topic
        self.acknowledged: dict[int, bytes] = {}

    def send(self, count: int) -> Counter[int]:
        """How often each error code was the answer (0: acknowledged)."""
        codes: Counter[int] = Counter()

        def delivered(error: Any, message: Any) -> None:
            codes[0 if error is None else error.code()] += 1
            if error is None:
                self.acknowledged[message.offset()] = message.value()

        producer = Producer({"bootstrap.servers": self._bootstrap, "retries": 0, "log_level": 0, "linger.ms": 1})
        for _ in range(count):
            producer.produce(self._topic, os.urandom(_VALUE_BYTES), on_delivery=delivered)
            if len(producer) > 500:
                producer.poll(0.05)
        assert producer.flush(20) == 0
        return codes

    def check(self) -> None:
        """Whatever was acknowledged, from the log start offset on, is there."""
        config = {"bootstrap.servers": self._bootstrap, "group.id": "check", "enable.auto.commit": False}
        consumer = Consumer({**config, "log_level": 0})
        start, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=10)
        assert end > max(self.acknowledged)
        consumer.assign([TopicPartition(self._topic, 0, start)])
        found: dict[int, bytes] = {}
        deadline = time.monotonic() + 20
        while max(found, default=start - 1) < end - 1:
            assert time.monotonic() < deadline, f"read to {max(found, default=start)}, the end is {end}"
            messages: list[Any] = consumer.consume(100, timeout=0.2)
            found.update({message.offset(): message.value() for message in messages})
        consumer.close()
        wrong = [offset for offset, value in self.acknowledged.items() if offset >= start and found[offset] != value]
        assert not wrong
