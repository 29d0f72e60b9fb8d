"""`Broker`: a broker for one's own tests, in a child process, with its files on tmpfs.

Blocking, in the caller's thread; `async with` starts and stops it beside the loop. The broker and its files end with
this process, however that ends. Can fail: `BrokerFailed`, with the tail of the broker's output.
"""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pybroker.cluster.ports import free_port
from pybroker.testing.embedded import launcher, wire
from pybroker.testing.embedded.launcher import BrokerFailed

if TYPE_CHECKING:
    from pybroker.testing.embedded.disk import Disk
    from pybroker.testing.embedded.network import Network

_PROPERTIES = {
    # A group forms at once: tests have nobody to wait for. Their sessions may be short.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    # Small, and what every container allows.
    "pybroker.reactors": "1",
    "pybroker.io.backend": "epoll",
    "pybroker.append.engine": "paced",
    "pybroker.metrics.listener": "127.0.0.1:0",
    # Decisions of the clock follow soon after it was moved.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "offsets.retention.check.interval.ms": "500",
}
_OUTPUT_LINES = 30


class Broker:
    """A running broker: `with Broker() as broker:` or `async with Broker() as broker:`.

    `properties` are settings of a server.properties file. It listens on a free port of 127.0.0.1, topics come into
    being when they are first used, and nothing survives the `with` block.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, *, timeout_seconds: float = 30.0) -> None:
        self._properties = {**_PROPERTIES, **(properties or {})}
        self._timeout_seconds = timeout_seconds
        self._launcher: launcher.Launcher | None = None
        self._dir: Path | None = None
        self._port = self._proxied_port = self._network_port = 0
        self._network: Network | None = None
        self._disk: Disk | None = None
        self._clock_ahead_ms = 0
        self._pid: int | None = None
        self._control: socket.socket | None = None

    # ---- what clients and tests ask ---------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as clients take it; the same after a restart. BrokerFailed before the first start."""
        if self._port == 0:
            raise BrokerFailed("the broker was never started; use it in a with statement, or call start()")
        return f"127.0.0.1:{self._port}"

    @property
    def network(self) -> Network:
        """Another way to the broker, which can refuse, drop and delay. OSError when its port is taken."""
        from pybroker.testing.embedded.network import Network

        if self._network is None:
            _ = self.bootstrap_servers
            self._network = Network(self._network_port, self._proxied_port)
        return self._network

    @property
    def disk(self) -> Disk:
        """The disk under its records, which can fail and be slow."""
        from pybroker.testing.embedded.disk import SYNCS, WRITES, Disk

        if self._disk is None:
            self._disk = Disk(lambda: self._ask({"do": "hand_over", "calls": [*SYNCS, *WRITES]})[1][0])
        return self._disk

    @property
    def pid(self) -> int:
        """Its process id; BrokerFailed while it is stopped."""
        if self._pid is None:
            raise BrokerFailed("the broker is stopped")
        return self._pid

    @property
    def output(self) -> str:
        """All that it has logged since its first start."""
        path = self._output_path
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; clients can use it as soon as this returns. BrokerFailed with the broker's reason."""
        from pybroker.protocol import messages as m
        from pybroker.testing.protocol_client import ProtocolClient

        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (config or {}).items()
            ],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=int(self._timeout_seconds * 1000))
        with ProtocolClient(self._port, client_id="pybroker.testing") as client:
            (row,) = client.call(request, 7).topics
        if row.error_code != 0:
            raise BrokerFailed(f"topic {name}: {row.error_message or f'error {row.error_code}'}")

    # ---- what may befall it ------------------------------------------------------------------------------------------

    def expire_sessions(self, group_id: str) -> int:
        """End the sessions of a consumer group's members, as if their heartbeats had stayed away; how many there were.

        The members find out by their next heartbeat and join again. BrokerFailed where groups are not served yet.
        """
        return int(self._command({"do": "expire_sessions", "group_id": group_id}))

    def jump_clock(self, seconds: float) -> None:
        """Put the broker's wall clock forward, or back, by so much; restarts do not undo it.

        Retention of records and of committed offsets goes by it, looked at every half second. Time-outs do not, and
        neither do timestamps of records.
        """
        ahead_ms = self._clock_ahead_ms + int(seconds * 1000)
        self._command({"do": "set_clock", "ahead_ms": ahead_ms})
        self._clock_ahead_ms = ahead_ms

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, with what it had on disk when it was stopped or killed. BrokerFailed when it runs already."""
        if self._pid is not None:
            raise BrokerFailed(f"the broker already runs as process {self._pid}")
        if self._launcher is None or not self._launcher.usable:
            self._launcher = launcher.launcher()
            self._dir = Path(tempfile.mkdtemp(dir=self._launcher.root()))
        assert self._output_path is not None
        if self._port == 0:
            self._port, self._proxied_port, self._network_port = free_port(), free_port(), free_port()
        self._control, theirs = wire.pair()
        self._control.settimeout(self._timeout_seconds)
        with theirs:
            self._pid = self._launcher.start(self._all_properties(), self._clock_ahead_ms, self._output_path, theirs)
        try:
            self._answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it cleanly; its files stay for the next start. BrokerFailed when it does not end well."""
        status = self._end(signal.SIGTERM)
        if status != 0:
            raise BrokerFailed(f"the broker ended with status {status}:\n{self._tail()}")

    def kill(self) -> None:
        """SIGKILL, as a crash; its files stay for the next start."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it cleanly, unless it is stopped or killed already, and start it again."""
        if self._pid is not None:
            self.stop()
        self.start()

    def close(self) -> None:
        """Kill it if it runs, and remove its files. A test that left its `with` block need not call it."""
        if self._pid is not None and self._launcher is not None and self._launcher.usable:
            self.kill()
        self._pid = None
        if self._network is not None:
            self._network.close()
            self._network = None
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._launcher = self._dir = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pid is not None and error is None:
                self.stop()
        finally:
            self.close()

    async def __aenter__(self) -> Broker:
        import asyncio

        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # ---- within -----------------------------------------------------------------------------------------------------

    @property
    def _output_path(self) -> Path | None:
        return None if self._dir is None else self._dir / "output"

    def _all_properties(self) -> dict[str, str]:
        address = f"PLAINTEXT://127.0.0.1:{self._port}"
        return {
            "log.dirs": f"{self._dir}/data",
            # A client that comes by the network is told of the network alone.
            "listeners": f"{address},NETWORK://127.0.0.1:{self._proxied_port}",
            "advertised.listeners": f"{address},NETWORK://127.0.0.1:{self._network_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NETWORK:PLAINTEXT",
            **self._properties,
        }

    def _end(self, number: signal.Signals) -> int:
        pid = self.pid
        assert self._launcher is not None
        try:
            return self._launcher.end(pid, number, self._timeout_seconds)
        finally:
            self._pid = None
            if self._disk is not None:
                self._disk.forget()
            if self._control is not None:
                self._control.close()
                self._control = None

    def _command(self, command: wire.Message) -> Any:
        return self._ask(command)[0]

    def _ask(self, command: wire.Message) -> tuple[Any, list[int]]:
        """The answer to a command, and the descriptors that came with it."""
        if self._control is None:
            raise BrokerFailed("the broker is stopped")
        try:
            wire.send(self._control, command)
        except OSError:
            raise BrokerFailed(f"the broker has ended:\n{self._tail()}") from None
        return self._answer()

    def _answer(self) -> tuple[Any, list[int]]:
        """The broker's answer; BrokerFailed when that is an error, or it has ended, or stays silent."""
        assert self._control is not None
        try:
            received = wire.receive(self._control)
        except TimeoutError:
            raise BrokerFailed(f"no answer from the broker in {self._timeout_seconds} s:\n{self._tail()}") from None
        if received is None:
            raise BrokerFailed(f"the broker has ended:\n{self._tail()}")
        message, descriptors = received
        if "error" in message:
            raise BrokerFailed(f"{message['error']}\n{self._tail()}")
        return message["value"], descriptors

    def _tail(self) -> str:
        return "\n".join(self.output.splitlines()[-_OUTPUT_LINES:])
