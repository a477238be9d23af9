"""The agent of the lease, as its pod asks it: HTTPS with the lease's certificate."""

import logging
import ssl
from typing import Any, Final, TypeVar

import httpx
import msgspec

from schemas.envelope import Message
from services.cluster.domain.link import (
    BEAT,
    FACT,
    HELLO,
    TELEMETRY,
    URL,
    Orders,
    Pulse,
    SignedUrl,
    UrlRequest,
    Welcome,
)
from services.trainer.ports import Telemetry
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.clock import Clock
from tunery.runtime.telemetry.logs import log_event

TIMEOUT_S: Final = 30.0
RETRIES: Final = Backoff(200, 5_000)
LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")


class AgentAway(Exception):
    """The agent cannot be reached, or cannot do its work; try again later."""


class AgentRefuses(Exception):
    """The agent refuses the request: the lease is over, or it is not this lease's."""


class AgentClient:
    """Asks the agent; also implements `Reporting` for the attempt."""

    def __init__(self, url: str, context: ssl.SSLContext, clock: Clock) -> None:
        self._clock = clock
        self._client = httpx.AsyncClient(
            base_url=url, verify=context, trust_env=False, timeout=TIMEOUT_S
        )

    async def hello(self) -> Welcome:
        """Return the lease. Raises AgentRefuses; waits for an agent that is away."""
        return await self._patiently(HELLO, None, Welcome)

    async def pulse(self, pulse: Pulse) -> Orders:
        """Send a pulse, and return the pool's orders. Raises AgentAway, AgentRefuses."""
        return await self._ask(BEAT, pulse, Orders)

    async def url(self, request: UrlRequest) -> SignedUrl:
        """Return a URL of an object. Raises AgentAway, AgentRefuses."""
        return await self._ask(URL, request, SignedUrl)

    async def fact(self, body: Message, tenant: str = "") -> None:
        """Return when the command is in the log, however long that takes. Raises AgentRefuses."""
        await self._patiently(FACT, body, None)

    async def telemetry(self, record: Telemetry) -> None:
        """Offer a record about the job; it is dropped when the agent is away."""
        try:
            await self._ask(TELEMETRY, record, None)
        except (AgentAway, AgentRefuses) as error:
            log_event(LOG, logging.WARNING, "telemetry.dropped", why=error)

    async def close(self) -> None:
        await self._client.aclose()

    async def _patiently(self, path: str, body: object, kind: type[T] | None) -> T:
        async def ask() -> T:
            return await self._ask(path, body, kind)

        return await retry(ask, (AgentAway,), clock=self._clock, backoff=RETRIES)

    async def _ask(self, path: str, body: object, kind: type[T] | None) -> T:
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            reply = await self._client.post(path, content=content)
        except httpx.TransportError as error:
            raise AgentAway(f"{path}: {type(error).__name__}: {error}") from error
        if reply.is_server_error:
            raise AgentAway(f"{path}: {reply.status_code} {reply.text}")
        if not reply.is_success:
            raise AgentRefuses(f"{path}: {reply.status_code} {reply.text}")
        none: Any = None
        return none if kind is None else msgspec.json.decode(reply.content, type=kind)
