"""What a request asks for twice."""

import asyncio
import types

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import empty_image
from pybroker.protocol import messages as m
from pybroker.server.apis.configs import describe_configs


def test_a_resource_that_a_request_repeats_is_described_once() -> None:
    """Five bytes of request are 50 KB of answer, and 440 KB of memory, each time."""
    config = BrokerConfig.load(None, ["node.id=1"])
    broker = types.SimpleNamespace(config=config, metadata=types.SimpleNamespace(image=empty_image("c")))
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    resource.configuration_keys = None
    request = m.DescribeConfigsRequest(resources=[resource] * 200, include_documentation=True)
    size = len(request.encode(4))
    answer = asyncio.run(describe_configs.handle(broker, None, request))
    assert size < 1100
    assert len(answer.encode(4)) < 1 << 20
