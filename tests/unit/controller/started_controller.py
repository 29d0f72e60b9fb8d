"""A controller over a directory of its own, for tests: started and registered, and stopped."""

import itertools
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.controller.start import start_controller
from pybroker.metadata.bootstrap import LogDirs, open_log_dirs
from pybroker.metadata.image import Endpoint
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m

_ticks = itertools.count(1_000_000)


async def start(path: Path, *overrides: str, **arguments: Any) -> tuple[Controller, LogDirs]:
    dirs = open_log_dirs([path], 1, 1000)
    config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}", *overrides])
    controller = await start_controller(config, dirs, lambda: next(_ticks), **arguments)
    registration = Registration(b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), None, (dirs.metadata.directory_id,))
    await controller.register_broker(registration, {}, lambda: None)
    return controller, dirs


async def stop(controller: Controller, dirs: LogDirs, *, clean: bool = True) -> None:
    if clean:
        await controller.fence_broker()
    await controller.close()
    dirs.release()


async def create(controller: Controller, name: str) -> int:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    response = await controller.create_topics(m.CreateTopicsRequest(topics=[topic]), 7)
    return response.topics[0].error_code
