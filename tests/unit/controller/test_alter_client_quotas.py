"""AlterClientQuotas: rows, error codes and records. Codes are those Apache Kafka answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.alter_client_quotas import addresses, alter_client_quotas
from pybroker.controller.state import MAX_RECORDS_PER_OPERATION, ControllerState
from pybroker.metadata.image import QuotaEntity
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

MakeState = Callable[..., ControllerState]
After = Callable[..., ControllerState]
ANN: QuotaEntity = (("user", "ann"),)
EVERYONE: QuotaEntity = (("user", None),)
APP: QuotaEntity = (("client-id", "app"),)
HOME: QuotaEntity = (("ip", "127.0.0.1"),)
REMOVED = None


def _entry(entity: QuotaEntity, *ops: tuple[str, float | None]) -> m.AlterClientQuotasRequest.EntryData:
    part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    return m.AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[op(key=key, value=value or 0.0, remove=value is REMOVED) for key, value in ops],
    )


def _alter(state: ControllerState, *entries: Any, validate_only: bool = False, unknown: tuple[str, ...] = ()) -> Any:
    request = m.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return alter_client_quotas(state, request, unknown)


def test_quotas_are_set_changed_and_removed(make_state: MakeState, after: After) -> None:
    state = make_state()
    result = _alter(
        state,
        _entry(ANN, ("producer_byte_rate", 1000.0), ("request_percentage", 0.5)),
        _entry(EVERYONE, ("consumer_byte_rate", 5.0)),
        _entry((("user", "ann"), ("client-id", None)), ("controller_mutation_rate", 2.5)),
        _entry(HOME, ("connection_creation_rate", 7.0)),
    )
    assert [(row.error_code, row.error_message) for row in result.response.entries] == [(0, None)] * 4
    state = after(state, result)
    assert state.image.client_quotas == {
        ANN: {"producer_byte_rate": 1000.0, "request_percentage": 0.5},
        EVERYONE: {"consumer_byte_rate": 5.0},
        (("client-id", None), ("user", "ann")): {"controller_mutation_rate": 2.5},
        HOME: {"connection_creation_rate": 7.0},
    }
    result = _alter(
        state,
        _entry(ANN, ("producer_byte_rate", 2000.0), ("request_percentage", REMOVED), ("consumer_byte_rate", REMOVED)),
        _entry(EVERYONE, ("consumer_byte_rate", REMOVED)),
    )
    assert after(state, result).image.client_quotas[ANN] == {"producer_byte_rate": 2000.0}
    assert EVERYONE not in after(state, result).image.client_quotas


def test_what_is_so_already_makes_no_records(make_state: MakeState, after: After) -> None:
    state = make_state()
    entry = _entry(APP, ("producer_byte_rate", 1000.0))
    state = after(state, _alter(state, entry))
    result = _alter(state, entry, _entry(ANN, ("producer_byte_rate", REMOVED), ("no.such.key", REMOVED)))
    assert result.records == []
    assert [row.error_code for row in result.response.entries] == [0, 0]


def test_validation_changes_nothing(make_state: MakeState) -> None:
    result = _alter(make_state(), _entry(APP, ("producer_byte_rate", 1000.0)), validate_only=True)
    assert result.records == []
    assert result.response.entries[0].error_code == 0


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ((), [("producer_byte_rate", 1.0)]),
        ((("group", "g"),), [("producer_byte_rate", 1.0)]),
        ((("user", ""),), [("producer_byte_rate", 1.0)]),
        ((("client-id", ""),), [("producer_byte_rate", 1.0)]),
        ((("ip", ""),), [("connection_creation_rate", 1.0)]),
        ((("ip", "127.0.0.1"), ("user", "ann")), [("connection_creation_rate", 1.0)]),
        ((("ip", "nowhere.invalid"),), [("connection_creation_rate", 1.0)]),
        (ANN, [("no.such.key", 1.0)]),
        (ANN, [("connection_creation_rate", 1.0)]),
        (HOME, [("producer_byte_rate", 1.0)]),
        (ANN, [("producer_byte_rate", 0.0), ("consumer_byte_rate", 1.0)]),
        (ANN, [("producer_byte_rate", -1.0)]),
        (ANN, [("producer_byte_rate", 1.5)]),
        (ANN, [("producer_byte_rate", 1e19)]),
        (ANN, [("producer_byte_rate", float("inf"))]),
        (ANN, [("producer_byte_rate", float("nan"))]),
        (ANN, [("request_percentage", float("inf"))]),
        (ANN, [("controller_mutation_rate", float("nan"))]),
        (HOME, [("connection_creation_rate", float("nan"))]),
        (HOME, [("connection_creation_rate", 2.0**31)]),
        (ANN, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
    ],
)
def test_what_makes_no_sense_is_refused(
    make_state: MakeState, entity: QuotaEntity, ops: list[tuple[str, float | None]]
) -> None:
    result = _alter(
        make_state(),
        _entry(entity, *ops),
        _entry(APP, ("producer_byte_rate", 1.0)),
        unknown=("nowhere.invalid",),
    )
    refused, accepted = result.response.entries
    assert (refused.error_code, accepted.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    assert refused.error_message
    (record,) = result.records
    assert record.record.entity[0].entity_name == "app"


def test_an_entity_is_altered_once(make_state: MakeState) -> None:
    result = _alter(make_state(), *(_entry(ANN, ("producer_byte_rate", value)) for value in (1.0, 2.0)))
    (row,) = result.response.entries
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert [each.record.value for each in result.records] == [1.0]


def test_large_values_and_fractions_within_tolerance(make_state: MakeState) -> None:
    values = (2.0**63, 3.0000001, 1e-300)
    result = _alter(
        make_state(),
        _entry(ANN, ("producer_byte_rate", values[0]), ("consumer_byte_rate", values[1])),
        _entry(APP, ("request_percentage", values[2])),
    )
    assert [row.error_code for row in result.response.entries] == [0, 0]
    assert [each.record.value for each in result.records] == list(values)


def test_more_than_one_batch_holds(make_state: MakeState) -> None:
    count = MAX_RECORDS_PER_OPERATION + 1
    entries = [_entry((("client-id", f"c{index}"),), ("producer_byte_rate", 1.0)) for index in range(count)]
    result = _alter(make_state(), *entries)
    assert len(result.records) == MAX_RECORDS_PER_OPERATION
    assert [row.error_code for row in result.response.entries[-2:]] == [0, ErrorCode.POLICY_VIOLATION]


def test_which_addresses_a_request_names() -> None:
    hosts = [_entry((("ip", name),)) for name in ("10.0.0.1", "host", None, "")]
    assert addresses(m.AlterClientQuotasRequest(entries=[*hosts, _entry(ANN)])) == {"10.0.0.1", "host"}
