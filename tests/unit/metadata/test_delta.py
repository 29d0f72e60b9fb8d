"""Replay: every record type of Kafka, what it changes, and what it must refuse."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.metadata import delta as delta_module
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, Provenance, ScramCredential
from pybroker.protocol import messages as m
from pybroker.protocol.loader import record_classes

TOPIC_ID = b"t" * 16
Replay = Callable[..., MetadataImage]


def _change(**fields: Any) -> m.PartitionChangeRecord:
    return m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)


def test_every_record_type_of_kafka_has_a_handler() -> None:
    names = {each.__name__ for each in record_classes("metadata", "metadata").values()}
    transactions = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}
    assert len(names) == 27
    assert set(delta_module._HANDLERS) == names - transactions


def test_an_unchanged_part_is_shared(image: MetadataImage, replay: Replay) -> None:
    other = b"u" * 16
    changed = replay(image, m.TopicRecord(name="beta", topic_id=other))
    assert changed.cluster is image.cluster
    assert changed.configs is image.configs
    assert changed.topics.by_name["alpha"] is image.topics.by_name["alpha"]
    assert changed.topics.by_id[other].name == "beta"
    assert "beta" not in image.topics.by_name


def test_partition_change_without_leader_keeps_the_leader_epoch(image: MetadataImage, replay: Replay) -> None:
    partition = replay(image, _change(isr=[])).topics.by_name["alpha"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 0, 1, ())


def test_naming_the_same_leader_is_an_election(image: MetadataImage, replay: Replay) -> None:
    after = replay(image, _change(leader=1), _change(leader=-1, eligible_leader_replicas=[1], isr=[]))
    partition = after.topics.by_name["alpha"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (-1, 2, 2)
    assert partition.eligible_leader_replicas == (1,)
    assert after.topics.by_name["alpha"].partitions[1] is image.topics.by_name["alpha"].partitions[1]


def test_reassigned_replicas_keep_the_directories_they_had(image: MetadataImage, replay: Replay) -> None:
    partition = replay(image, _change(replicas=[2, 1])).topics.by_name["alpha"].partitions[0]
    assert partition.directories == (UNASSIGNED_DIRECTORY, b"d" * 16)


def test_clear_elr(image: MetadataImage, replay: Replay) -> None:
    eligible = replay(image, _change(eligible_leader_replicas=[1], last_known_elr=[1]))
    for name in ("", "alpha"):
        partition = replay(eligible, m.ClearElrRecord(topic_name=name)).topics.by_name["alpha"].partitions[0]
        assert partition.eligible_leader_replicas == partition.last_known_elr == ()
        assert partition.partition_epoch == 2
    with pytest.raises(MetadataError, match="does not exist"):
        replay(image, m.ClearElrRecord(topic_name="nope"))


def test_removing_a_topic_removes_its_configs(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    delta.replay(m.RemoveTopicRecord(topic_id=TOPIC_ID), 0)
    after = delta.apply(Provenance())
    assert not after.topics.by_name and not after.topics.by_id and not after.configs
    assert delta.topics_changed == {TOPIC_ID: None}
    assert delta.configs_changed == {(2, "alpha")}


def test_a_topic_deleted_and_created_again_in_one_delta(image: MetadataImage, replay: Replay) -> None:
    new_id = b"n" * 16
    after = replay(image, m.RemoveTopicRecord(topic_id=TOPIC_ID), m.TopicRecord(name="alpha", topic_id=new_id))
    assert after.topics.by_name["alpha"].id == new_id
    assert set(after.topics.by_id) == {new_id}


@pytest.mark.parametrize(
    "record",
    [
        m.TopicRecord(name="alpha", topic_id=b"x" * 16),
        m.PartitionRecord(topic_id=b"x" * 16, partition_id=0),
        m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=9),
        m.RemoveTopicRecord(topic_id=b"x" * 16),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=2),
        m.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=1),
        m.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        m.FenceBrokerRecord(id=1, epoch=4),
        m.BeginTransactionRecord(),
    ],
)
def test_records_that_contradict_the_state(image: MetadataImage, replay: Replay, record: Any) -> None:
    with pytest.raises(MetadataError):
        replay(image, record)


def test_broker_registration_changes(image: MetadataImage, replay: Replay) -> None:
    change = m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1, in_controlled_shutdown=1)
    fenced = replay(image, change).cluster.brokers[1]
    assert fenced.fenced and fenced.in_controlled_shutdown and fenced.directories == (b"d" * 16,)
    moved = m.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=5, fenced=-1, log_dirs=[b"e" * 16], cordoned_log_dirs=[b"e" * 16]
    )
    after = replay(replay(image, change), moved).cluster.brokers[1]
    assert replay(image, change).endpoint(1, "PLAINTEXT") is None
    assert image.endpoint(1, "PLAINTEXT") == ("h", 9092)
    assert image.endpoint(1, "OTHER") is None is image.endpoint(2, "PLAINTEXT")
    assert not after.fenced and after.directories == (b"e" * 16,) == after.cordoned_directories
    legacy = replay(image, m.FenceBrokerRecord(id=1, epoch=5), m.UnfenceBrokerRecord(id=1, epoch=5))
    assert not legacy.cluster.brokers[1].fenced
    assert not replay(image, m.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)).cluster.brokers


def test_configs_features_and_producer_ids(image: MetadataImage, replay: Replay) -> None:
    after = replay(
        image,
        m.ConfigRecord(resource_type=2, resource_name="alpha", name="retention.ms", value=None),
        m.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="7"),
        m.FeatureLevelRecord(name="group.version", feature_level=1),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=3000),
        m.RegisterControllerRecord(controller_id=1),
    )
    assert after.configs == {(4, ""): {"log.retention.ms": "7"}}
    assert after.feature_levels == {"metadata.version": 30, "group.version": 1}
    assert after.next_producer_id == 3000
    assert set(after.cluster.controllers) == {1}
    gone = replay(after, m.FeatureLevelRecord(name="group.version", feature_level=0))
    assert gone.feature_levels == {"metadata.version": 30}


def test_a_controller_is_unregistered_once(image: MetadataImage, replay: Replay) -> None:
    two = replay(image, m.RegisterControllerRecord(controller_id=1), m.RegisterControllerRecord(controller_id=2))
    one = replay(two, m.UnregisterControllerRecord(controller_id=2))
    assert set(one.cluster.controllers) == {1}
    assert one.cluster.brokers == image.cluster.brokers
    with pytest.raises(MetadataError, match="controller 2, which is not registered"):
        replay(one, m.UnregisterControllerRecord(controller_id=2))


def test_records_of_unserved_features_are_kept_until_removed(replay: Replay) -> None:
    records = [m.AccessControlEntryRecord(id=b"a" * 16), m.DelegationTokenRecord(token_id="token")]
    kept = replay(empty_image("cluster"), *records)
    assert [record for record, _ in kept.retained.values()] == records
    removed = replay(kept, m.RemoveAccessControlEntryRecord(id=b"a" * 16))
    assert [record for record, _ in removed.retained.values()] == records[1:]
    assert not replay(removed, m.RemoveDelegationTokenRecord(token_id="token")).retained


def _quota(key: str, value: float, remove: bool = False, **entity: str | None) -> m.ClientQuotaRecord:
    parts = [
        m.ClientQuotaRecord.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return m.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def test_client_quotas(replay: Replay) -> None:
    image = replay(
        empty_image("cluster"),
        _quota("a", 1.0, user=None),
        _quota("a", 2.0, user=""),
        _quota("a", 3.0, user="ann", client_id="app"),
        _quota("b", 4.0, client_id="app", user="ann"),
        _quota("a", 5.0, ip="10.0.0.1"),
        _quota("a", 6.0, ip="10.0.0.1"),
    )
    everyone, nameless = (("user", None),), (("user", ""),)
    anns_app, home = (("client-id", "app"), ("user", "ann")), (("ip", "10.0.0.1"),)
    assert image.client_quotas == {
        everyone: {"a": 1.0},
        nameless: {"a": 2.0},
        anns_app: {"a": 3.0, "b": 4.0},
        home: {"a": 6.0},
    }
    removed = replay(
        image,
        _quota("a", 0.0, remove=True, user=None),
        _quota("a", 0.0, remove=True, user="ann", client_id="app"),
        _quota("absent", 0.0, remove=True, user="nobody"),
    )
    assert removed.client_quotas == {nameless: {"a": 2.0}, anns_app: {"b": 4.0}, home: {"a": 6.0}}
    assert image.client_quotas[everyone] == {"a": 1.0}, "an image never changes"


def test_scram_credentials(replay: Replay) -> None:
    def record(name: str, mechanism: int, iterations: int) -> m.UserScramCredentialRecord:
        return m.UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=iterations
        )

    image = replay(empty_image("cluster"), record("bob", 1, 4096), record("bob", 2, 5000), record("bob", 1, 6000))
    assert image.scram_credentials == {
        (1, "bob"): ScramCredential(b"s", b"k", b"v", 6000),
        (2, "bob"): ScramCredential(b"s", b"k", b"v", 5000),
    }
    gone = [m.RemoveUserScramCredentialRecord(name=name, mechanism=1) for name in ("bob", "nobody")]
    assert list(replay(image, *gone).scram_credentials) == [(2, "bob")]


def test_a_delta_says_whether_quotas_were_touched(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    delta.replay(m.RemoveUserScramCredentialRecord(name="bob", mechanism=1), 0)
    assert not delta.client_quotas_changed
    assert not delta.is_empty
    delta = MetadataDelta(image)
    delta.replay(_quota("a", 1.0, user="ann"), 0)
    assert delta.client_quotas_changed
    assert not delta.is_empty


def test_records_without_effect(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    delta.replay(m.NoOpRecord(), 0)
    delta.replay(m.ZkMigrationStateRecord(), 0)
    assert delta.is_empty
    assert delta.apply(image.provenance) == image
