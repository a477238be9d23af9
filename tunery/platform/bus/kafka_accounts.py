"""Accounts of principals on Kafka: SCRAM credentials and access control lists, made equal to ours.

aiokafka's admin client knows no SCRAM credentials and one ACL at a time, so this speaks Kafka's
protocol over one connection: of a broker, or of a controller (KIP-919).
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    for_code,
)
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
from tunery.platform.bus.grants import KafkaGrant, Operation, Resource
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.clock import SystemClock

REFUSED: Final = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
REQUEST_MS_MAX: Final[Ms] = 10_000
LOGIN_TRY_MS: Final[Ms] = 50
LOGIN_MS_MAX: Final[Ms] = 60_000
SHA_512: Final = 2  # Kafka's number of SCRAM-SHA-512
ITERATIONS: Final = 4_096  # Kafka's minimum; more would not help, as passwords are random
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
    """Grants and password of a Kafka principal."""

    grants: frozenset[KafkaGrant]
    # None: the principal is authenticated by other means
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


class LoginRefused(Unavailable):
    """Kafka refuses this login. Waiting does not help."""


class Ready:
    """Request with a fixed version."""

    def __init__(self, struct: RequestStruct) -> None:
        self._struct = struct

    def prepare(self, _versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        return self._struct


@asynccontextmanager
async def operator_connection(options: Mapping[str, Any], bootstrap: str) -> AsyncIterator[Any]:
    """Connect to the first broker of the list that answers; it passes changes to the controller.

    options: connection options of an operator, for aiokafka's clients. Raises Unavailable.
    """
    failures, refused = [], 0
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            connection = await create_conn(
                host, int(port), request_timeout_ms=REQUEST_MS_MAX, **options
            )
        except (KafkaError, OSError, TimeoutError) as error:
            failures.append(f"Kafka at {host}:{port}: {error!r}")
            refused += isinstance(error, REFUSED)
            continue
        try:
            yield connection
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"Kafka at {host}:{port}: {error!r}") from error
        finally:
            connection.close()
        return
    raise (LoginRefused if refused else Unavailable)("; ".join(failures))


async def provide_accounts(
    options: Mapping[str, Any], bootstrap: str, accounts: Mapping[str, Account]
) -> None:
    """Give each principal its password and exactly its grants; other principals are left alone.

    options, bootstrap: see `operator_connection`. Raises Unavailable.
    """
    async with operator_connection(options, bootstrap) as connection:
        await _set_passwords(connection, accounts)
        await _set_grants(connection, accounts)


async def await_logins(logins: Iterable[Mapping[str, Any]], bootstrap: str) -> None:
    """Wait until each broker of the list lets all of these in.

    A broker gets an account a moment after its controller. logins: options as for
    `operator_connection`. Raises Unavailable where one is refused for a minute.
    """
    for address in bootstrap.split(","):
        for options in logins:
            await retry(
                partial(_log_in, options, address),
                (LoginRefused,),
                clock=SystemClock(),
                backoff=every(LOGIN_TRY_MS),
                elapsed_ms_max=LOGIN_MS_MAX,
            )


async def _log_in(options: Mapping[str, Any], address: str) -> None:
    async with operator_connection(options, address):
        pass


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
    answer = await connection.send(Ready(_AlterScramRequest([], upsertions, {})))
    raise_first((code, f"{user}: {message}") for user, code, message, _ in answer.results)


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
        answer = await connection.send(Ready(CreateAclsRequest_v1(added)))
        raise_first(answer.creation_responses)
    if obsolete := sorted(there - wanted):
        answer = await connection.send(Ready(DeleteAclsRequest_v1(obsolete)))
        raise_first((code, message) for code, message, _ in answer.filter_responses)


async def _entries(connection: Any) -> Sequence[Entry]:
    """All entries that Kafka has. Raises KafkaError."""
    every = DescribeAclsRequest_v1(ANY, None, ANY, None, None, ANY, ANY)
    answer = await connection.send(Ready(every))
    raise_first([(answer.error_code, answer.error_message)])
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


def raise_first(results: Iterable[tuple[int, str | None]]) -> None:
    """Raises the error of the first result that has one."""
    for code, message in results:
        if code:
            raise for_code(code)(message)


async def missing_grants(
    options: Mapping[str, Any], bootstrap: str, accounts: Mapping[str, Account]
) -> dict[str, list[KafkaGrant]]:
    """Principal → the grants of its account that Kafka does not have; changes nothing.

    options, bootstrap: see `operator_connection`. Raises Unavailable.
    """
    async with operator_connection(options, bootstrap) as connection:
        present = frozenset(await _entries(connection))
    lacking = {
        principal: [grant for grant in account.grants if _entry(principal, grant) not in present]
        for principal, account in accounts.items()
    }
    return {principal: sorted(grants, key=str) for principal, grants in lacking.items() if grants}
