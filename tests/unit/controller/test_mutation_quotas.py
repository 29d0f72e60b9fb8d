"""Clients are held to `controller_mutation_rate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.create_partitions import create_partitions
from pybroker.controller.create_topics import create_topics
from pybroker.controller.delete_topics import delete_topics
from pybroker.controller.mutation_quotas import MutationQuotas, Mutations
from pybroker.controller.state import ControllerState, Refusal
from pybroker.metadata.delta import empty_image
from pybroker.metadata.image import MetadataImage, QuotaEntity, quota_entity
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.error_codes import ErrorCode as E

APP = Origin(client_id="app")
#: Two windows of a second: at 2 partitions per second the bucket holds 4.
CONFIG = BrokerConfig.load(None, ["node.id=1", "controller.quota.window.num=2"])


class _Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def _image(**rates_of_clients: float) -> MetadataImage:
    quotas = {
        quota_entity({"client-id": name}): {"controller_mutation_rate": rate} for name, rate in rates_of_clients.items()
    }
    return empty_image("cluster").replace(client_quotas=quotas)


def _take(quotas: MutationQuotas, image: MetadataImage, count: int, strict: bool = True) -> int:
    mutations = quotas.of(image, CONFIG, APP, strict)
    assert mutations is not None
    mutations.take(count)
    return mutations.throttle_ms


def test_a_burst_and_what_follows() -> None:
    clock = _Clock()
    quotas, image = MutationQuotas(clock), _image(app=2.0)
    assert _take(quotas, image, 3) == 0
    # More than is left, but something was.
    assert _take(quotas, image, 5) == 0
    with pytest.raises(Refusal, match="2000 ms") as refused:
        _take(quotas, image, 1)
    assert refused.value.code is E.THROTTLING_QUOTA_EXCEEDED
    clock.now_ms += 2_000
    assert _take(quotas, image, 1) == 0
    clock.now_ms += 3_600_000
    assert _take(quotas, image, 5) == 0
    with pytest.raises(Refusal, match="500 ms"):
        _take(quotas, image, 1)


def test_old_versions_are_told_to_wait_and_not_refused() -> None:
    quotas, image = MutationQuotas(_Clock()), _image(app=2.0)
    assert [_take(quotas, image, 4, strict=False) for _ in range(3)] == [0, 2_000, 4_000]


def test_who_has_no_quota() -> None:
    quotas = MutationQuotas(_Clock())
    assert quotas.of(_image(), CONFIG, APP, True) is None
    assert quotas.of(_image(other=1.0), CONFIG, APP, True) is None
    assert quotas.of(_image(app=1.0), CONFIG, Origin(), True) is None


class _Many(dict[QuotaEntity, Any]):
    """As many quotas as there are clients: nobody has the time to go through them."""

    def __iter__(self) -> Iterator[QuotaEntity]:
        raise AssertionError("all quotas were looked at for one client")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_a_quota_is_found_among_many() -> None:
    image = _image(app=2.0)
    assert _take(MutationQuotas(_Clock()), image.replace(client_quotas=_Many(dict(image.client_quotas))), 3) == 0


def _state(make_state: Callable[..., ControllerState], mutations: Mutations | None) -> ControllerState:
    return make_state(overrides=("num.partitions=3",)).replace(mutations=mutations)


def test_what_counts(make_state: Callable[..., ControllerState], after: Callable[..., ControllerState]) -> None:
    """Partitions that come and go, of what is not refused for another reason, in the order asked for."""
    clock = _Clock()
    quotas, image = MutationQuotas(clock), _image(app=2.0)

    def now() -> Mutations | None:
        return quotas.of(image, CONFIG, APP, True)

    topic = m.CreateTopicsRequest.CreatableTopic
    wanted = [topic(name=name, num_partitions=-1, replication_factor=-1) for name in ("a", "..", "b", "c")]
    state = _state(make_state, now())
    made = create_topics(state, m.CreateTopicsRequest(topics=wanted), 7)
    codes = [E.NONE, E.INVALID_TOPIC_EXCEPTION, E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert [row.error_code for row in made.response.topics] == codes
    state = after(state, made).replace(mutations=now())
    deletion = m.DeleteTopicsRequest(topic_names=["a", "none"])
    codes = [E.THROTTLING_QUOTA_EXCEEDED, E.UNKNOWN_TOPIC_OR_PARTITION]
    refused = delete_topics(state, deletion, 5)
    assert ([row.error_code for row in refused.response.responses], refused.records) == (codes, [])
    more = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=5, assignments=None)]
    )
    (row,) = create_partitions(state, more).response.results
    assert row.error_code == E.THROTTLING_QUOTA_EXCEEDED
    clock.now_ms += 1_000
    (row,) = create_partitions(state.replace(mutations=now()), more).response.results
    assert row.error_code == E.NONE
    clock.now_ms += 1_000
    assert delete_topics(state.replace(mutations=now()), deletion, 5).records
