"""A whole broker in this process, spoken to over loopback."""

from __future__ import annotations

import asyncio
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from daemon_client import CLIENT_ID, config_for, connected, running

from pybroker.config.broker import BrokerConfig
from pybroker.coordinator.group.coordinator import GroupCoordinator
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.profiles import load_profile
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.daemon import Daemon, ready_line
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, topic_ids
from pybroker.storage.logs.log_manager import LogManager


def api_versions(version: str = "1.0") -> Any:
    return m.ApiVersionsRequest(client_software_name="test", client_software_version=version)


def names(log_dir: Path) -> list[str]:
    """Directories of partitions, without what makes those unique that were set aside."""
    found = (each.name for each in log_dir.iterdir() if each.is_dir() and not each.name.startswith("__"))
    return sorted(re.sub(r"\.[0-9a-f]{32}", "", name) for name in found)


async def delete_topic(client: Any, name: str) -> None:
    request = m.DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000)
    assert (await client.call(request, 5)).responses[0].error_code == 0


def test_api_versions(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            response = await client.call(api_versions(), 4)
            ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
            assert ranges[1] == (4, 18)
            assert ranges[0] == (0, 13), "as Kafka says, for old librdkafka"
            assert ranges[3] == (0, 13)
            assert ranges[18] == (0, 5)
            assert [(each.name, each.max_version_level) for each in response.finalized_features] == [
                ("metadata.version", MAX_METADATA_VERSION),
                ("eligible.leader.replicas.version", 1),
                ("kraft.version", 1),
            ]
            assert {each.name: each.min_version for each in response.supported_features}["kraft.version"] == 0
            older = await client.call(api_versions(), 3)
            assert "kraft.version" not in {each.name for each in older.supported_features}
            refused = await client.call(api_versions("bad version!"), 3)
            assert refused.error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            header = struct.pack(">hhih", 18, 99, 5, len(CLIENT_ID)) + CLIENT_ID.encode() + b"\0"
            client.writer.write(struct.pack(">i", len(header)) + header)
            data = await client.receive()
            assert struct.unpack_from(">i", data) == (5,)
            response, end = m.ApiVersionsResponse.decode(0, data, 4)
            assert end == len(data)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(each.api_key, each.max_version) for each in response.api_keys] == [(18, 5)]
            assert (await client.call(api_versions(), 4)).error_code == 0, "the connection goes on"

    asyncio.run(run())


def test_topics_are_created_by_asking_and_are_served_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path, num_partitions="3")) as daemon, connected(daemon) as client:
            assert (await client.ask_for_topic("made")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row = await client.make_topic("made")
            assert (row.error_code, len(row.partitions)) == (0, 3)
            assert row.partitions[0].leader_id == 1
            assert (await client.produce("made", b"x")).error_code == 0
            for name, code in (
                ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
                ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
                # Coordinators make them, which this broker has not.
                ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("__share_group_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ):
                assert (await client.ask_for_topic(name)).error_code == code
            quiet = m.MetadataRequest(
                topics=[m.MetadataRequest.MetadataRequestTopic(name="other")], allow_auto_topic_creation=False
            )
            assert (await client.call(quiet, 12)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            every = await client.call(m.MetadataRequest(topics=None), 12)
            assert [topic.name for topic in every.topics] == ["made"]
            by_id = m.MetadataRequest.MetadataRequestTopic(topic_id=row.topic_id, name=None)
            unknown = m.MetadataRequest.MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
            found = (await client.call(m.MetadataRequest(topics=[by_id, unknown]), 13)).topics
            assert [(each.name, each.error_code) for each in found] == [
                ("made", 0),
                (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ]
            for version in (10, 11):
                refused = (await client.call(m.MetadataRequest(topics=[by_id, unknown]), version)).topics
                assert [(each.name, each.error_code) for each in refused] == [("", ErrorCode.INVALID_REQUEST)] * 2
            none = await client.call(m.MetadataRequest(topics=[]), 1)
            assert none.topics == []
            assert len((await client.call(m.MetadataRequest(topics=[]), 0)).topics) == 1, "all, in version 0"

    asyncio.run(run())


def test_no_topic_is_created_where_that_is_switched_off(tmp_path: Path) -> None:
    async def run() -> None:
        config = config_for(tmp_path, auto_create_topics_enable="false")
        async with running(config) as daemon, connected(daemon) as client:
            assert (await client.ask_for_topic("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await daemon.services.topic_creation.finished()
            assert (await client.ask_for_topic("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_list_offsets(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"a", b"b", timestamp_ms=1000)
            await client.produce("t", b"c", timestamp_ms=3000)
            await client.produce("t", b"d", timestamp_ms=2000)

            async def offset(timestamp_ms: int, version: int = 11) -> tuple[int, int, int]:
                row = await client.offset("t", timestamp_ms, version)
                return row.error_code, row.offset, row.timestamp

            assert await offset(-1) == (0, 4, -1)
            assert await offset(-2) == (0, 0, -1)
            assert await offset(-3) == (0, 2, 3000)
            assert await offset(-4) == (0, 0, -1)
            assert await offset(-5) == (0, -1, -1)
            assert await offset(-6) == (0, -1, -1)
            assert await offset(1001) == (0, 2, 3000)
            assert await offset(3001) == (0, -1, -1)
            assert await offset(-1, 1) == (0, 4, -1)
            assert (await client.offset("t", -1, 11)).leader_epoch == 0
            assert await offset(-3, 6) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
            assert await offset(-7) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
            fenced = await client.offset("t", -1, current_leader_epoch=-1)
            assert fenced.error_code == 0
            ahead = await client.offset("t", -1, current_leader_epoch=9)
            assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await client.offset("none", -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
            twice = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted, wanted])
            response = await client.call(m.ListOffsetsRequest(replica_id=-1, topics=[twice]), 10)
            assert [row.error_code for row in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2

    asyncio.run(run())


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"a", b"b")
            first_epoch = (await client.offset("t", -1)).leader_epoch
        assert clean_shutdown.read(tmp_path) is not None
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            assert clean_shutdown.read(tmp_path) is None
            row = await client.offset("t", -1)
            assert (row.offset, row.leader_epoch) == (2, first_epoch + 1)
            assert (await client.produce("t", b"c")).base_offset == 2

    asyncio.run(run())


def test_a_deleted_topic_leaves_its_name_free(tmp_path: Path) -> None:
    async def run() -> None:
        config = config_for(tmp_path, log_segment_delete_delay_ms="1")
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"a")
            await delete_topic(client, "t")
            assert (await client.offset("t", -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await client.make_topic("t")
            assert (await client.offset("t", -1)).offset == 0
            for _ in range(6000):
                if names(tmp_path) == ["t-0"]:
                    break
                await asyncio.sleep(0.01)
            assert names(tmp_path) == ["t-0"], "the old directory goes after file.delete.delay.ms"

    asyncio.run(run())


def test_strays_are_set_aside_and_replaced_topics_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"a")
        shutil.copytree(tmp_path / "t-0", tmp_path / "unknown-7")
        metadata_file = tmp_path / "t-0" / "partition.metadata"
        text = metadata_file.read_text()
        metadata_file.write_text(re.sub("topic_id: .*", "topic_id: AAECAwQFBgcICQoLDA0ODw", text))
        # It would say that this is damage.
        (tmp_path / topic_ids.FILE_NAME).unlink()
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            assert names(tmp_path) == ["t-0", "t-0-stray", "unknown-7-stray"]
            assert (await client.offset("t", -1)).offset == 0, "another topic's records are not served"

    asyncio.run(run())


def test_what_comes_while_logs_are_opened_is_no_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled = ReplicaManager.settled
    topic_id = bytes(range(16))

    async def settle_more(replicas: ReplicaManager) -> None:
        """Metadata comes from the controllers all the time, and to recover logs takes its time."""
        monkeypatch.setattr(ReplicaManager, "settled", settled)
        await settled(replicas)
        delta = MetadataDelta(starting[0].services.metadata.image)
        delta.replay(m.TopicRecord(name="late", topic_id=topic_id), 0)
        delta.replay(m.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1), 1)
        replicas.publish(delta, delta.apply(starting[0].services.metadata.image.provenance))
        await settled(replicas)

    config = config_for(tmp_path)
    starting: list[Daemon] = []

    async def run() -> None:
        async with running(config):
            (tmp_path / "unknown-7").mkdir()
        monkeypatch.setattr(ReplicaManager, "settled", settle_more)
        daemon = Daemon(config, load_profile(config))
        starting.append(daemon)
        await daemon.start()
        try:
            assert names(tmp_path) == ["late-0", "unknown-7-stray"]
            assert ("late", 0) in daemon.logs.logs
        finally:
            await daemon.stop()

    asyncio.run(run())


def test_topic_configs_are_applied_live(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            change = m.IncrementalAlterConfigsRequest.AlterableConfig(name="max.message.bytes", value="100")
            resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=2, resource_name="t", configs=[change]
            )
            response = await client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert response.responses[0].error_code == 0
            assert (await client.produce("t", bytes(200))).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await client.produce("t", b"x")).error_code == 0

    asyncio.run(run())


def test_a_malformed_body_costs_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon:
            async with connected(daemon) as client:
                await client.send(3, 12, b"\xff\xff\xff\xff\xff\xff\xff")
                assert await client.is_closed()
            async with connected(daemon) as client:
                assert (await client.call(api_versions(), 4)).error_code == 0

    asyncio.run(run())


def test_two_brokers_cannot_share_a_port_or_a_log_dir(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path / "a")) as daemon:
            port = daemon.listeners[0].port
            with pytest.raises(NativeError, match=str(port)):
                async with running(config_for(tmp_path / "b", listeners=f"PLAINTEXT://127.0.0.1:{port}")):
                    pass
            with pytest.raises(StorageError, match="in use by another broker"):
                async with running(config_for(tmp_path / "a")):
                    pass
        async with running(config_for(tmp_path / "b")):
            pass

    asyncio.run(run())


def test_partitions_spread_over_log_dirs_and_are_found_again(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"

    async def run() -> None:
        config = config_for(tmp_path, log_dirs=dirs, num_partitions="4")
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.produce("t", b"a")
        assert [len(names(tmp_path / each)) for each in "ab"] == [2, 2]
        assert all(clean_shutdown.read(tmp_path / each) is not None for each in "ab")
        async with running(config_for(tmp_path, log_dirs=dirs)) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == 1

    asyncio.run(run())


def test_each_listener_is_told_its_own_endpoint(tmp_path: Path) -> None:
    async def run() -> None:
        config = config_for(
            tmp_path,
            listeners="INNER://127.0.0.1:0,OUTER://127.0.0.1:0",
            advertised_listeners="INNER://127.0.0.1:0,OUTER://broker.example:19092",
            listener_security_protocol_map="INNER:PLAINTEXT,OUTER:PLAINTEXT",
            inter_broker_listener_name="INNER",
        )
        async with running(config) as daemon:
            told = []
            for index in range(2):
                async with connected(daemon, index) as client:
                    broker = (await client.call(m.MetadataRequest(topics=[]), 12)).brokers[0]
                    told.append((broker.host, broker.port))
            assert told == [("127.0.0.1", daemon.listeners[0].port), ("broker.example", 19092)]

    asyncio.run(run())


def test_stop_does_not_wait_for_those_who_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.find_coordinator("g")
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
            join = m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=300_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
            await client.send(11, 3, join.encode(3))
            async with connected(daemon) as other:
                await other.send(3, 12, m.MetadataRequest(topics=None).encode(12))
                await other.receive()
            async with asyncio.timeout(25):
                await daemon.stop()
            data = await client.reader.read()
            assert data == b"" or m.JoinGroupResponse.decode(3, data, 8)[0].error_code != 0

    asyncio.run(run())


def test_a_stop_that_goes_wrong_still_ends_serving_before_the_logs_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    async def fail(_: Any) -> None:
        raise RuntimeError("a defect")

    def note(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            order.append(f"{owner.__name__}.{name}")
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)

    async def run() -> None:
        with pytest.raises(RuntimeError, match="a defect"):
            async with running(config_for(tmp_path)):
                monkeypatch.setattr(GroupCoordinator, "stop", fail)
                note(NativeBroker, "stop")
                note(LogManager, "close")

    asyncio.run(run())
    assert order == ["NativeBroker.stop", "LogManager.close"]


def test_a_backend_that_nobody_asked_for_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.native.backend_refusal", lambda backend: f"{backend} is refused")
    monkeypatch.setattr(NativeBroker, "backend", "epoll")

    async def reason(backend: str) -> str | None:
        async with running(config_for(tmp_path, pybroker_io_backend=backend)) as daemon:
            return daemon.backend_reason

    assert asyncio.run(reason("epoll")) is None
    assert asyncio.run(reason("auto")) == "io_uring is refused"


def test_the_ready_line_names_what_counts(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon:
            line = ready_line(daemon, 12)
            port = daemon.listeners[0].port
            assert line.startswith(f"pybroker ready listeners=PLAINTEXT://127.0.0.1:{port} node.id=1 profile=generic ")
            assert " io=epoll engine=paced durability=none reactors=1 " in line
            assert line.endswith(" started_ms=12")

    asyncio.run(run())


def test_the_ready_line_says_when_nobody_chose_the_listener(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon:
            daemon.config = BrokerConfig.load(None)
            line = ready_line(daemon, 12)
            assert line.endswith(" started_ms=12 (this machine only: set listeners to serve others)")

    asyncio.run(run())
