"""Quotas of principals on Kafka: how many bytes a second each may write to a broker.

A client over its quota is delayed by the broker and loses nothing. Neither aiokafka's admin client
nor librdkafka's can change quotas, so this speaks Kafka's protocol (KIP-546).
"""

from collections.abc import Mapping
from typing import Any, Final

from aiokafka.protocol.admin import DescribeClientQuotasRequest_v0
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

from tunery.platform.bus.kafka_accounts import Ready, operator_connection, raise_first

#: of a node: heartbeats, facts and telemetry of eight slots at many steps a second are 0.5 MB/s.
#: A node that somebody took over cannot fill the disks of the brokers in an hour.
NODE_BYTES_PER_S: Final = 2 * 1024 * 1024
USER: Final = "user"
PRODUCER_RATE: Final = "producer_byte_rate"
ANY_SPECIFIED: Final = 2  # entities that have a name


class _AlterQuotasResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "entries",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                (
                    "entity",
                    Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8"))),
                ),
            ),
        ),
    )


class _AlterQuotasRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """AlterClientQuotas, which aiokafka 0.14 does not know."""

    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _AlterQuotasResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                (
                    "entity",
                    Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8"))),
                ),
                (
                    "ops",
                    Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean)),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


async def producer_limits(options: Mapping[str, Any], bootstrap: str) -> dict[str, float]:
    """Principal → bytes that it may write to a broker in a second, where it has a quota of its own.

    options, bootstrap: see `operator_connection`. Raises Unavailable.
    """
    async with operator_connection(options, bootstrap) as connection:
        users = DescribeClientQuotasRequest_v0([(USER, ANY_SPECIFIED, None)], True)
        answer = await connection.send(Ready(users))
        raise_first([(answer.error_code, answer.error_message)])
    return {
        name: dict(values)[PRODUCER_RATE]
        for ((_, name),), values in answer.entries
        if PRODUCER_RATE in dict(values)
    }


async def limit_producers(
    options: Mapping[str, Any], bootstrap: str, limits: Mapping[str, int]
) -> None:
    """Give each principal this quota of bytes a second to a broker. Raises Unavailable."""
    if not limits:
        return
    async with operator_connection(options, bootstrap) as connection:
        entries = [
            ([(USER, principal)], [(PRODUCER_RATE, float(limit), False)])
            for principal, limit in limits.items()
        ]
        answer = await connection.send(Ready(_AlterQuotasRequest(entries, False)))
        raise_first((code, message) for code, message, _ in answer.entries)
