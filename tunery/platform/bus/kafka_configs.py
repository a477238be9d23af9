"""Settings of brokers and topics: read as they are, and topics' changed one by one."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from schemas.units import Ms
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_accounts import Ready, operator_connection, raise_first
from tunery.runtime.bus.abstract import Unavailable

ANSWER_MS_MAX: Final[Ms] = 5_000
SET: Final = 0  # the operation of IncrementalAlterConfigs
GROUPS: Final = "__consumer_offsets"


class _AlterResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _AlterRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """IncrementalAlterConfigs, which aiokafka 0.14 does not know."""

    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _AlterResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(
                        ("name", String("utf-8")),
                        ("operation", Int8),
                        ("value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


@dataclass(frozen=True)
class TopicState:
    """A topic as it is."""

    partitions: int
    replicas: int
    settings: Mapping[str, str | None] | None  # None: this principal may not see them


@dataclass(frozen=True)
class ClusterState:
    """Live brokers with their settings, and topics."""

    brokers: Mapping[int, Mapping[str, str | None]]
    silent: Mapping[int, str]  # why the settings of other live brokers are not known, by broker
    topics: Mapping[str, TopicState] = field(default_factory=dict)

    @property
    def live(self) -> int:
        return len(self.brokers) + len(self.silent)


async def describe(settings: KafkaSettings, topics: Sequence[str]) -> ClusterState:
    """Return the state of Kafka: its live brokers, and those of `topics` that exist.

    Metadata comes from one broker that answers, settings from each broker. Raises Unavailable.
    """
    async with operator_connection(settings.login, settings.bootstrap) as connection:
        cluster = await connection.send(MetadataRequest(None, False))
        shape = {
            name: partitions
            for _, name, _, partitions in cluster.topics
            if name in topics or name == GROUPS
        }
        configs = await _of_topics(connection, sorted(shape))
    answers = await asyncio.gather(
        *(_of_broker(settings, broker, host, port) for broker, host, port, _ in cluster.brokers)
    )
    ids = [broker for broker, *_ in cluster.brokers]
    return ClusterState(
        {n: values for n, values in zip(ids, answers, strict=True) if not isinstance(values, str)},
        {n: why for n, why in zip(ids, answers, strict=True) if isinstance(why, str)},
        {
            name: TopicState(
                len(partitions),
                min((len(replicas) for _, _, _, replicas, *_ in partitions), default=0),
                configs.get(name),
            )
            for name, partitions in shape.items()
        },
    )


async def alter_topics(settings: KafkaSettings, changes: Mapping[str, Mapping[str, str]]) -> None:
    """Set these settings of topics; others stay as they are. Raises Unavailable."""
    resources = [
        (int(ConfigResourceType.TOPIC), topic, [(name, SET, value) for name, value in new.items()])
        for topic, new in changes.items()
    ]
    async with operator_connection(settings.login, settings.bootstrap) as connection:
        answer = await connection.send(Ready(_AlterRequest(resources, False)))
        raise_first((code, f"{name}: {why}") for code, why, _, name in answer.responses)


async def _of_broker(
    settings: KafkaSettings, broker: int, host: str, port: int
) -> dict[str, str | None] | str:
    """The broker's settings, or why they are not known: it may be away, or not show them."""
    wanted = DescribeConfigsRequest([(int(ConfigResourceType.BROKER), str(broker), None)])
    try:
        async with (
            asyncio.timeout(ANSWER_MS_MAX / 1_000),
            operator_connection(settings.login, f"{host}:{port}") as connection,
        ):
            answer = await connection.send(wanted)
    except (Unavailable, TimeoutError) as error:
        return str(error) or "it does not answer"
    [(code, _, _, _, entries)] = answer.resources
    return repr(for_code(code)()) if code else {name: value for name, value, *_ in entries}


async def _of_topics(connection: Any, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Settings of the topics that this principal may see."""
    topics = [(int(ConfigResourceType.TOPIC), name, None) for name in names]
    answer = await connection.send(DescribeConfigsRequest(topics))
    return {
        topic: {name: value for name, value, *_ in entries}
        for code, _, _, topic, entries in answer.resources
        if not code
    }
