"""`quorum-state`: the raft election state of a node (KIP-595), JSON with a `data_version`.

Version 1 is of kraft.version 1 (KIP-853), version 0 of clusters with statically configured voters. The one voter of an
embedded controller elects itself at every start, which is a new epoch.
"""

from __future__ import annotations

import json
from pathlib import Path

from pybroker.protocol.uuids import ZERO_UUID, uuid_to_text
from pybroker.storage.errors import StorageError, said_of
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text
from pybroker.values import Value

FILE_NAME = "quorum-state"


class QuorumState(Value):
    """The leader of an epoch, as far as this node knows. `voters` is known only in data version 0."""

    leader_id: int
    leader_epoch: int
    voters: tuple[int, ...] = ()

    @classmethod
    def read(cls, directory: Path) -> QuorumState | None:
        """The state, None when there is none yet. StorageError when the file makes no sense."""
        path = directory / FILE_NAME
        try:
            content = json.loads(read_text(path))
            version = content["data_version"]
            if version not in (0, 1):
                raise StorageError(f"{path}: data_version {version!r}, but only 0 and 1 are known")
            voters = tuple(int(voter["voterId"]) for voter in content.get("currentVoters") or ())
            return cls(int(content["leaderId"]), int(content["leaderEpoch"]), voters)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path}: not a quorum state: {said_of(error)}") from error

    def write(self, directory: Path, kraft_version: int) -> None:
        """Replace the file durably, in the format that belongs to `kraft_version`."""
        content: dict[str, object]
        if kraft_version == 0:
            content = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": -1,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in self.voters or (self.leader_id,)],
                "data_version": 0,
            }
        else:
            content = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": -1,
                "votedDirectoryId": uuid_to_text(ZERO_UUID),
                "data_version": 1,
            }
        write_durably(directory / FILE_NAME, json.dumps(content, separators=(",", ":")).encode())
