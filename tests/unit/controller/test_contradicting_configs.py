"""Dynamic settings of the broker that contradict one another, or what the file says at the next start."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.controller.start import start_controller
from pybroker.metadata.bootstrap import LogDirs, open_log_dirs
from pybroker.metadata.image import RESOURCE_BROKER, Endpoint
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m

_ticks = itertools.count(1_000_000)


async def _start(paths: list[Path], *overrides: str) -> tuple[Controller, LogDirs]:
    dirs = open_log_dirs(paths, 1, 1000)
    listed = ",".join(str(path) for path in paths)
    config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={listed}", *overrides])
    controller = await start_controller(config, dirs, lambda: next(_ticks))
    ids = tuple(each.directory_id for each in dirs.dirs)
    registration = Registration(b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), None, ids)
    await controller.register_broker(registration, {}, lambda: None)
    return controller, dirs


async def _stop(controller: Controller, dirs: LogDirs) -> None:
    await controller.fence_broker()
    await controller.close()
    dirs.release()


def _resource(name: str, key: str, value: str) -> Any:
    alter = m.IncrementalAlterConfigsRequest
    config = alter.AlterableConfig(name=key, config_operation=0, value=value)
    return alter.AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name=name, configs=[config])


async def _create(controller: Controller, name: str) -> int:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return (await controller.create_topics(m.CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code


def test_one_request_that_alters_the_default_and_the_broker_is_checked_as_a_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller, dirs = await _start([tmp_path / "a"])
        request = m.IncrementalAlterConfigsRequest(
            resources=[
                _resource("", "log.cleaner.min.compaction.lag.ms", "1000"),
                _resource("1", "log.cleaner.max.compaction.lag.ms", "500"),
            ]
        )
        response = await controller.incremental_alter_configs(request)
        assert [each.error_code == 0 for each in response.responses] == [True, False]
        assert await _create(controller, "t") == 0
        await _stop(controller, dirs)
        controller, dirs = await _start([tmp_path / "a"])
        await _stop(controller, dirs)

    asyncio.run(scenario())


def test_a_cordoned_log_dir_can_be_taken_out_of_log_dirs(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"

    async def scenario() -> None:
        controller, dirs = await _start([first, second])
        request = m.IncrementalAlterConfigsRequest(resources=[_resource("1", "cordoned.log.dirs", str(second))])
        response = await controller.incremental_alter_configs(request)
        assert [each.error_code for each in response.responses] == [0]
        await _stop(controller, dirs)
        controller, dirs = await _start([first])
        assert await _create(controller, "t") == 0
        await _stop(controller, dirs)

    asyncio.run(scenario())
