"""Network namespaces, one per node, on a bridge that this machine has an address on too; and cuts between nodes.

Needs root, `ip` of iproute2 and, for cuts, `nft` of nftables. A cut drops packets where they arrive, so that the sender
sees what it would see of a broken cable: nothing. Addresses are of 198.18.0.0/15, which is kept for such tests (RFC
2544). Blocks. Fails with `ClusterError`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pybroker.cluster.errors import ClusterError

_SUBNET_COUNT = 256
_PREFIX_BITS = 24
_TABLE = "inet pybroker"


class BridgeTaken(ClusterError):
    """The bridge of that number is another cluster's."""


@dataclass(frozen=True, slots=True)
class Network:
    """`number` names the bridge and its subnet; the address of each node follows from its index."""

    number: int

    @property
    def bridge(self) -> str:
        """The name of the bridge's device, also the beginning of those of the namespaces."""
        return f"pbc{self.number}"

    @property
    def gateway(self) -> str:
        """This machine's address on the bridge, from which clients come."""
        return f"198.18.{self.number}.1"

    def host(self, index: int) -> str:
        """The address of the node of that index, from 0."""
        return f"198.18.{self.number}.{index + 2}"

    def namespace(self, index: int) -> str:
        """The name of its namespace."""
        return f"{self.bridge}-{index}"

    def command_prefix(self, index: int) -> list[str]:
        """The words in front of a command that runs it in the namespace; the process id is that of the command."""
        return [_program("ip", "iproute2"), "netns", "exec", self.namespace(index)]

    def exists(self) -> bool:
        """Whether its bridge is there."""
        return self.bridge in _devices("type", "bridge")

    def create(self, node_count: int) -> None:
        """Make the bridge, and the namespaces of so many nodes; after a failure nothing of them is left. `BridgeTaken`:
        somebody else has made the bridge."""
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
        except ClusterError as error:
            if self.exists():
                raise BridgeTaken(str(error)) from error
            raise
        try:
            _ip("addr", "add", f"{self.gateway}/{_PREFIX_BITS}", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for index in range(node_count):
                self._add_node(index)
        except ClusterError:
            self.remove()
            raise

    def _add_node(self, index: int) -> None:
        name, inside, outside = self.namespace(index), f"{self.bridge}i{index}", f"{self.bridge}o{index}"
        _ip("netns", "add", name)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        _ip("link", "set", outside, "master", self.bridge, "up")
        _ip("link", "set", inside, "netns", name)
        _ip("-n", name, "addr", "add", f"{self.host(index)}/{_PREFIX_BITS}", "dev", inside)
        _ip("-n", name, "link", "set", inside, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def cut(self, sources: Collection[int], target: int) -> None:
        """From now on nothing of the nodes `sources` arrives at the node `target`; what `target` sends still does."""
        rules = [
            f"add table {_TABLE}",
            f"add chain {_TABLE} arrivals {{ type filter hook input priority 0 ; policy accept ; }}",
            *(f"add rule {_TABLE} arrivals ip saddr {self.host(source)} drop" for source in sources),
        ]
        self._nft(target, rules)

    def heal(self, targets: Iterable[int]) -> None:
        """Everything arrives at these nodes again."""
        for target in targets:
            self._nft(target, [f"add table {_TABLE}", f"delete table {_TABLE}"])

    def _nft(self, index: int, rules: list[str]) -> None:
        _run([*self.command_prefix(index), _program("nft", "nftables"), "-f", "-"], "\n".join(rules) + "\n")

    def remove(self) -> None:
        """Take all of it away; what is not there is left out."""
        # With a namespace alone they would go some time later, and the next network of this number meets them.
        for device in _devices():
            if device.startswith(f"{self.bridge}o"):
                _ip("link", "delete", device)
        for name in _namespaces():
            if name.startswith(f"{self.bridge}-"):
                _ip("netns", "delete", name)
        if self.exists():
            _ip("link", "delete", self.bridge)


def make_network(node_count: int) -> Network:
    """One with a number that no other cluster has."""
    for number in range(_SUBNET_COUNT):
        network = Network(number)
        if network.exists():
            continue
        try:
            network.create(node_count)
        except BridgeTaken:
            continue
        return network
    raise ClusterError(f"all {_SUBNET_COUNT} bridges for clusters are taken: end some with `pybroker cluster down`")


def _devices(*kind: str) -> set[str]:
    lines = _ip("-o", "link", "show", *kind).splitlines()
    return {line.split(": ")[1].partition("@")[0] for line in lines}


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines()]


def _program(name: str, package: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise ClusterError(f"{name} was not found: namespaces need it (Debian: apt-get install {package})")
    return found


def _ip(*arguments: str) -> str:
    return _run([_program("ip", "iproute2"), *arguments])


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed, which takes root: {done.stderr.strip()}")
    return done.stdout
