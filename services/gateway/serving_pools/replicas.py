"""Asks a replica of a serving pool, and another one where that is away or full."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from msgspec import MsgspecError

from schemas.units import Ms
from services.gateway.serving_pools.engine_connection import ask_over
from services.gateway.views.ports import Views
from services.gateway.views.tables.serving_pools import REPLICAS, ReplicaRow
from services.gateway.web.domain.errors import UNAVAILABLE, ApiError
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.telemetry.logs import log_event
from tunery.work.engine import (
    BUSY,
    LINE_BYTES_MAX,
    AnswerWaits,
    EngineReply,
    Question,
    QuestionRefused,
)
from tunery.work.replica import ReplicaEndpoint, decode_endpoint

LOG: Final = logging.getLogger("tunery.gateway")
CONNECT_MS_MAX: Final[Ms] = 3_000
REPLICAS_READ_MAX: Final = 100  # more than a tenant may have, with those that drain
RETRY_S: Final = 5


@dataclass(frozen=True)
class ReplicaEngine:
    """Implements `ChatEngine`."""

    views: Views
    seal: Sealer
    tenant: str
    serving_pool_id: str
    caller: str  # identifies the caller, who keeps a replica while it is there

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        """The parts of one answer; the last one ends or refuses it. Raises ApiError 503.

        Another replica is asked as long as none has said a part of the answer.
        """
        full: QuestionRefused | None = None
        for row in await self._ready():
            begun = False
            try:
                async with aclosing(self._ask(row, question)) as replies:
                    async for reply in replies:
                        if not begun and isinstance(reply, QuestionRefused) and reply.code == BUSY:
                            full = reply
                            break
                        begun = begun or not isinstance(reply, AnswerWaits)
                        yield reply
                    else:
                        return
            except ApiError as error:
                if begun:
                    raise
                log_event(LOG, logging.WARNING, "replica.away", replica=row.id, why=error.message)
        if full is None:
            raise self._none_ready()
        yield full

    async def _ready(self) -> Sequence[ReplicaRow]:
        """Replicas that answer, the caller's own first, then in an order of the caller's."""
        where = {"tenant": self.tenant, "serving_pool_id": self.serving_pool_id}
        rows = await self.views.page(REPLICAS, where, limit=REPLICAS_READ_MAX)
        ready = [row for row in rows if row.endpoint is not None and not row.draining]
        return sorted(ready, key=self._rank)

    def _rank(self, row: ReplicaRow) -> bytes:
        return sha256(f"{self.caller}/{row.id}".encode()).digest()

    async def _ask(self, row: ReplicaRow, question: Question) -> AsyncGenerator[EngineReply, None]:
        try:
            endpoint = decode_endpoint(
                self.seal.open(row.endpoint, "endpoint") if row.endpoint else ""
            )
            reader, writer = await connect(endpoint)
        except (OSError, TimeoutError, MsgspecError) as error:
            raise self._none_ready() from error
        writer.write(f"{endpoint.secret}\n".encode())
        async with aclosing(ask_over(reader, writer, question)) as replies:
            async for reply in replies:
                yield reply

    def _none_ready(self) -> ApiError:
        message = (
            f"No replica of the serving pool {self.serving_pool_id} answers now. Try again "
            "shortly; `tunery serving show` says what its replicas are doing."
        )
        headers = {"retry-after": str(RETRY_S)}
        return ApiError(503, UNAVAILABLE, message, "model", headers=headers)


async def connect(
    endpoint: ReplicaEndpoint,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the replica whose certificate this is. Raises OSError, TimeoutError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is known itself, whatever the name
    context.load_verify_locations(cadata=endpoint.certificate)
    async with asyncio.timeout(CONNECT_MS_MAX / 1_000):
        return await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=context, limit=LINE_BYTES_MAX
        )
