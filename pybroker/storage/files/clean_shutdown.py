"""`.kafka_cleanshutdown`: the mark that everything in a log dir was synced before the broker stopped.

JSON with `version` 0 and `brokerEpoch` (KIP-966): the epoch the broker was registered with. It must be written last,
after every log is synced, and taken away before the first write after a start.
"""

import json
from pathlib import Path

from pybroker.storage.files.atomic import fsync_directory, write_durably
from pybroker.storage.files.regular_file import read_text

FILE_NAME = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1


def write(log_dir: Path, broker_epoch: int) -> None:
    """Mark `log_dir` as cleanly closed under `broker_epoch`."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_durably(log_dir / FILE_NAME, text.encode())


def read(log_dir: Path) -> int | None:
    """The broker epoch of the last clean stop; None when the stop was not clean.

    Older Kafka versions leave an empty file: clean, but of `UNKNOWN_BROKER_EPOCH`.
    """
    try:
        text = read_text(log_dir / FILE_NAME)
        content = json.loads(text) if text else {}
        epoch = content.get("brokerEpoch", UNKNOWN_BROKER_EPOCH) if isinstance(content, dict) else UNKNOWN_BROKER_EPOCH
    except FileNotFoundError:
        return None
    except ValueError:
        return UNKNOWN_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH


def remove(log_dir: Path) -> None:
    """Take the mark away durably, so that a crash from here on counts as unclean."""
    (log_dir / FILE_NAME).unlink(missing_ok=True)
    fsync_directory(log_dir)
