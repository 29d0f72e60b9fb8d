"""The answer to a client whose forwarded request reached no active controller: an error in each row. Pure."""

from __future__ import annotations

from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError


def refused(request: Any, error: KafkaError) -> Any:
    """The response to `request` that says `error` of all it asked for."""
    rows = _ROWS.get(type(request))
    fields = {"error_code": error.code, "error_message": error.message}
    if rows is not None:
        return rows(request, fields)
    kind: Any = m.response_class(request.API_KEY)
    return kind(**{name: value for name, value in fields.items() if name in kind.__slots__})


def _create_topics(request: m.CreateTopicsRequest, fields: Any) -> m.CreateTopicsResponse:
    row = m.CreateTopicsResponse.CreatableTopicResult
    return m.CreateTopicsResponse(topics=[row(name=each.name, **fields) for each in request.topics])


def _delete_topics(request: m.DeleteTopicsRequest, fields: Any) -> m.DeleteTopicsResponse:
    row = m.DeleteTopicsResponse.DeletableTopicResult
    rows = [row(name=name, **fields) for name in request.topic_names]
    rows += [row(name=each.name, topic_id=each.topic_id, **fields) for each in request.topics]
    return m.DeleteTopicsResponse(responses=rows)


def _create_partitions(request: m.CreatePartitionsRequest, fields: Any) -> m.CreatePartitionsResponse:
    row = m.CreatePartitionsResponse.CreatePartitionsTopicResult
    return m.CreatePartitionsResponse(results=[row(name=each.name, **fields) for each in request.topics])


def _alter_configs(request: m.AlterConfigsRequest, fields: Any) -> m.AlterConfigsResponse:
    row = m.AlterConfigsResponse.AlterConfigsResourceResponse
    return m.AlterConfigsResponse(responses=[row(**_resource(each), **fields) for each in request.resources])


def _incremental_alter_configs(
    request: m.IncrementalAlterConfigsRequest, fields: Any
) -> m.IncrementalAlterConfigsResponse:
    row = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return m.IncrementalAlterConfigsResponse(responses=[row(**_resource(each), **fields) for each in request.resources])


def _resource(resource: Any) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _alter_client_quotas(request: m.AlterClientQuotasRequest, fields: Any) -> m.AlterClientQuotasResponse:
    row, part = m.AlterClientQuotasResponse.EntryData, m.AlterClientQuotasResponse.EntityData
    return m.AlterClientQuotasResponse(
        entries=[
            row(
                entity=[part(entity_type=one.entity_type, entity_name=one.entity_name) for one in each.entity], **fields
            )
            for each in request.entries
        ]
    )


def _alter_user_scram_credentials(
    request: m.AlterUserScramCredentialsRequest, fields: Any
) -> m.AlterUserScramCredentialsResponse:
    row = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return m.AlterUserScramCredentialsResponse(results=[row(user=user, **fields) for user in users])


def _alter_partition_reassignments(
    request: m.AlterPartitionReassignmentsRequest, fields: Any
) -> m.AlterPartitionReassignmentsResponse:
    topic = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    row = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

    def rows(partitions: Any) -> list[Any]:
        return [row(partition_index=each.partition_index, **fields) for each in partitions]

    topics = [topic(name=each.name, partitions=rows(each.partitions)) for each in request.topics]
    return m.AlterPartitionReassignmentsResponse(responses=topics, **fields)


def _elect_leaders(request: m.ElectLeadersRequest, fields: Any) -> m.ElectLeadersResponse:
    topic, row = m.ElectLeadersResponse.ReplicaElectionResult, m.ElectLeadersResponse.PartitionResult
    topics = [
        topic(topic=each.topic, partition_result=[row(partition_id=one, **fields) for one in each.partitions])
        for each in request.topic_partitions or ()
    ]
    return m.ElectLeadersResponse(error_code=fields["error_code"], replica_election_results=topics)


_ROWS: dict[Any, Any] = {
    m.AlterPartitionReassignmentsRequest: _alter_partition_reassignments,
    m.ElectLeadersRequest: _elect_leaders,
    m.CreateTopicsRequest: _create_topics,
    m.DeleteTopicsRequest: _delete_topics,
    m.CreatePartitionsRequest: _create_partitions,
    m.AlterConfigsRequest: _alter_configs,
    m.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    m.AlterClientQuotasRequest: _alter_client_quotas,
    m.AlterUserScramCredentialsRequest: _alter_user_scram_credentials,
}
