"""Accounts of principals on Kafka: SCRAM credentials and access control lists, made equal to ours.

aiokafka's admin client knows no SCRAM credentials and one ACL at a time, so this speaks Kafka's
protocol over one connection: of a broker, or of a controller (KIP-919).
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import (
    CreateAclsRequest_v1,
    DeleteAclsRequest_v1,
    DescribeAclsRequest_v1,
)
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from schemas.units import Ms
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.grants import KafkaGrant, Operation, Resource

REQUEST_MS_MAX: Final[Ms] = 10_000
SHA_512: Final = 2  # Kafka's number of SCRAM-SHA-512
ITERATIONS: Final = 4_096  # Kafka's least; passwords are random, so nobody can guess them
SALT_BYTES: Final = 16
ANY, ALLOW, LITERAL, PREFIXED = 1, 3, 3, 4
RESOURCES: Final[Mapping[Resource, int]] = {"topic": 2, "group": 3}
OPERATIONS: Final[Mapping[Operation, int]] = {"read": 3, "write": 4, "delete": 6, "describe": 8}
ANY_HOST: Final = "*"

#: an entry of an access control list, with Kafka's numbers: resource, name, pattern, principal,
#: host, operation, permission
Entry = tuple[int, str, int, str, str, int, int]


@dataclass(frozen=True)
class Account:
    """What a principal may do, and its password; None where something else authenticates it."""

    grants: frozenset[KafkaGrant]
    password: str | None = field(default=None, repr=False)


class _AlterScramResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterScramRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """AlterUserScramCredentials, which aiokafka 0.14 does not know."""

    API_KEY = 51
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _AlterScramResponse
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(
                ("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)
            ),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Ready:
    """A request whose version is chosen already."""

    def __init__(self, struct: RequestStruct) -> None:
        self._struct = struct

    def prepare(self, _versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        return self._struct


async def provide_accounts(
    options: Mapping[str, Any], host: str, port: int, accounts: Mapping[str, Account]
) -> None:
    """Give each principal its password and exactly its grants; other principals are left alone.

    options: by which an operator authenticates, as for aiokafka's clients. Raises Unavailable.
    """
    try:
        connection = await create_conn(host, port, request_timeout_ms=REQUEST_MS_MAX, **options)
        try:
            await _set_passwords(connection, accounts)
            await _set_grants(connection, accounts)
        finally:
            connection.close()
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(f"accounts of Kafka at {host}:{port}: {error!r}") from error


async def _set_passwords(connection: Any, accounts: Mapping[str, Account]) -> None:
    """Raises KafkaError."""
    upsertions: list[tuple[object, ...]] = []
    for principal, account in accounts.items():
        if account.password is not None:
            salt = secrets.token_bytes(SALT_BYTES)
            salted = hashlib.pbkdf2_hmac("sha512", account.password.encode(), salt, ITERATIONS)
            upsertions.append((principal, SHA_512, ITERATIONS, salt, salted, {}))
    if not upsertions:
        return
    answer = await connection.send(_Ready(_AlterScramRequest([], upsertions, {})))
    _raise_first((code, f"{user}: {message}") for user, code, message, _ in answer.results)


async def _set_grants(connection: Any, accounts: Mapping[str, Account]) -> None:
    """Raises KafkaError."""
    wanted = {
        _entry(principal, grant)
        for principal, account in accounts.items()
        for grant in account.grants
    }
    ours = {f"User:{principal}" for principal in accounts}
    there = {entry for entry in await _entries(connection) if entry[3] in ours}
    if added := sorted(wanted - there):
        answer = await connection.send(_Ready(CreateAclsRequest_v1(added)))
        _raise_first(answer.creation_responses)
    if obsolete := sorted(there - wanted):
        answer = await connection.send(_Ready(DeleteAclsRequest_v1(obsolete)))
        _raise_first((code, message) for code, message, _ in answer.filter_responses)


async def _entries(connection: Any) -> Sequence[Entry]:
    """All entries that Kafka has. Raises KafkaError."""
    every = DescribeAclsRequest_v1(ANY, None, ANY, None, None, ANY, ANY)
    answer = await connection.send(_Ready(every))
    _raise_first([(answer.error_code, answer.error_message)])
    return [
        (resource, name, pattern, *entry)
        for resource, name, pattern, entries in answer.resources
        for entry in entries
    ]


def _entry(principal: str, grant: KafkaGrant) -> Entry:
    pattern = PREFIXED if grant.is_prefix else LITERAL
    operation = OPERATIONS[grant.operation]
    resource = RESOURCES[grant.resource]
    return (resource, grant.name, pattern, f"User:{principal}", ANY_HOST, operation, ALLOW)


def _raise_first(results: Iterable[tuple[int, str | None]]) -> None:
    """Raises the error of the first result that has one."""
    for code, message in results:
        if code:
            raise for_code(code)(message)
