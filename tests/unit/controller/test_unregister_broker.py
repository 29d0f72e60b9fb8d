"""UnregisterBroker: codes and records, and what becomes of the partitions of the broker that goes."""

from collections.abc import Callable

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.controller.unregister_broker import unregister_broker
from pybroker.metadata.image import NO_LEADER
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
TOPIC_ID = bytes(15) + b"\x05"
GONE = m.UnregisterBrokerRequest(broker_id=2)


def test_a_broker_that_is_gone_leads_nothing_and_is_in_sync_nowhere(make_state: State, after: After) -> None:
    shared = {"replicas": [1, 2], "isr": [1, 2], "leader": 1}
    last = {"replicas": [2, 3], "isr": [2], "leader": 2}
    of_others = {"replicas": [1, 3], "isr": [1], "leader": 1}
    eligible = {"replicas": [1, 2, 3], "isr": [1], "leader": 1, "eligible_leader_replicas": [2, 3]}
    state = make_state(brokers=3)
    records = [m.TopicRecord(name="left", topic_id=TOPIC_ID)]
    for index, fields in enumerate((shared, last, of_others, eligible)):
        epochs = {"leader_epoch": 4, "partition_epoch": 6}
        records.append(m.PartitionRecord(partition_id=index, topic_id=TOPIC_ID, **epochs, **fields))
    state = after(state, ControllerResult(None, [state.versioned(record) for record in records]))
    result = unregister_broker(state, GONE)
    assert result.response.error_code == ErrorCode.NONE
    image = after(state, result).image
    assert sorted(image.cluster.brokers) == [1, 3]
    partitions = image.topics.by_name["left"].partitions
    assert (partitions[0].isr, partitions[0].leader, partitions[0].replicas) == ((1,), 1, (1, 2))
    assert (partitions[1].isr, partitions[1].leader, partitions[1].leader_epoch) == ((2,), NO_LEADER, 5)
    assert partitions[2] is state.image.topics.by_name["left"].partitions[2]
    assert partitions[3].eligible_leader_replicas == (3,)


def test_nobody_unregisters_a_broker_twice_or_one_that_never_was(make_state: State, after: After) -> None:
    state = make_state(brokers=2)
    state = after(state, unregister_broker(state, GONE))
    for broker_id in (2, 9, -1):
        result = unregister_broker(state, m.UnregisterBrokerRequest(broker_id=broker_id))
        assert (result.response.error_code, result.records) == (ErrorCode.BROKER_ID_NOT_REGISTERED, [])


def test_this_broker_stays(make_state: State) -> None:
    result = unregister_broker(make_state(), m.UnregisterBrokerRequest(broker_id=1))
    assert (result.response.error_code, result.records) == (ErrorCode.INVALID_REQUEST, [])


def test_the_record_has_the_epoch_that_is_registered(make_state: State) -> None:
    (record,) = unregister_broker(make_state(brokers=2), GONE).records
    assert record == VersionedRecord(m.UnregisterBrokerRecord(broker_id=2, broker_epoch=2), 0)
