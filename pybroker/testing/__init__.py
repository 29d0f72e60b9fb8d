"""A broker for tests: `with Broker() as broker:`, and a pytest plugin with the fixtures `kafka_broker`,
`fresh_kafka_broker` and `kafka_topic`. docs/testing.md is the manual.

Public are the names in `__all__` and those fixtures. The modules beside are what those need and may change at any
time. The broker never imports any of it.
"""

from pybroker.testing.embedded.broker import Broker
from pybroker.testing.embedded.launcher import BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
