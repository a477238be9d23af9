"""Ports for sending webhooks and e-mail."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from schemas.units import Ms
from services.notifier.domain.mail import Mail

ANSWER_BYTES_MAX: Final = 1_048_576


class ReceiverUnreachable(Exception):
    """No response this time: name, connection, TLS, or time limit. Worth another try.

    As for `Forbidden`, the message names no host.
    """


@dataclass(frozen=True)
class WebhookResponse:
    """Response of a webhook receiver."""

    status: int  # HTTP status
    retry_after_ms: Ms | None = None  # the pause that the receiver asked for, if it did


class Mailer(Protocol):
    """Hands e-mail to a mail server."""

    async def send(self, mail: Mail) -> None:
        """Send once.

        Raises ReceiverUnreachable when another try may succeed, and Forbidden for an address that
        is not allowed or that the server refuses for good.
        """


@dataclass(frozen=True)
class ServerAnswer:
    """Response of a server."""

    status: int
    content: bytes  # its first ANSWER_BYTES_MAX bytes at most


class Outbound(Protocol):
    """Sends webhooks to receivers of tenants."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Send once, follow nothing.

        Raises ReceiverUnreachable, and Forbidden for a URL that is never called.
        """

    async def close(self) -> None:
        """Free the connections."""


class TenantServers(Protocol):
    """Calls servers of tenants."""

    async def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        """Send once to a tenant's server, follow nothing, and read its answer.

        Raises ReceiverUnreachable, and Forbidden for a URL that is never called.
        """
