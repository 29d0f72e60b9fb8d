"""Answers and records that have room for what they are made of."""

import asyncio
import itertools
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.controller.start import start_controller
from pybroker.metadata.bootstrap import LogDirs, open_log_dirs
from pybroker.metadata.image import RESOURCE_TOPIC, Endpoint
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin

_ticks = itertools.count(1_000_000)


async def _start(path: Path) -> tuple[Controller, LogDirs]:
    dirs = open_log_dirs([path], 1, 1000)
    config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}"])
    controller = await start_controller(config, dirs, lambda: next(_ticks))
    registration = Registration(b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), None, (dirs.metadata.directory_id,))
    await controller.register_broker(registration, {}, lambda: None)
    return controller, dirs


def _create(name: str, count: int = 1) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic])


def test_an_answer_can_be_written_whatever_the_mutation_quota(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller, dirs = await _start(tmp_path)
        request = m.AlterClientQuotasRequest
        entry = request.EntryData(
            entity=[request.EntityData(entity_type="user", entity_name=None)],
            ops=[request.OpData(key="controller_mutation_rate", value=1e-7, remove=False)],
        )
        answer = await controller.alter_client_quotas(request(entries=[entry], validate_only=False))
        assert answer.entries[0].error_code == 0
        for version, name in ((7, "a"), (7, "b"), (5, "c")):
            response = await controller.perform(_create(name, 10), version, Origin())
            response.encode(version)
        await controller.close()
        dirs.release()

    asyncio.run(scenario())


def test_a_list_that_grows_too_long_is_refused_with_a_code(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller, dirs = await _start(tmp_path)
        await controller.create_topics(_create("t"), 7)
        alter = m.IncrementalAlterConfigsRequest

        def grow(first: int) -> m.IncrementalAlterConfigsRequest:
            value = ",".join(f"{number}:1" for number in range(first, first + 3500))
            config = alter.AlterableConfig(
                name="leader.replication.throttled.replicas", config_operation=2, value=value
            )
            resource = alter.AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name="t", configs=[config])
            return alter(resources=[resource])

        for first in (10000, 20000):
            response = await controller.incremental_alter_configs(grow(first))
        assert response.responses[0].error_code in (40, 42)
        await controller.close()
        dirs.release()

    asyncio.run(scenario())
