"""Dependencies of all routes, and the caller of a request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from schemas.account import ADMIN_SCOPE
from schemas.envelope import Idempotency, Message
from schemas.sealed import Sealed, SealedField
from schemas.streams import GLOBAL, PARTITIONS, Stream
from schemas.submission import KeyCap
from services.gateway.ports import AuditNotes, BaseFolders, ChatEngine, Prices, Rates, Traffic
from services.gateway.settings import GatewaySettings
from services.gateway.views.ports import ReadModels
from services.gateway.web.commands import CommandSender
from services.gateway.web.domain.errors import FORBIDDEN, ApiError
from services.gateway.web.domain.scopes import allows
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.clock import Clock
from tunery.runtime.health import Health
from tunery.runtime.store.abstract import CommandResult


@dataclass(frozen=True)
class Deps:
    """Dependencies of every route."""

    settings: GatewaySettings
    views: ReadModels
    commands: CommandSender
    blobs: Blobs
    seal: Sealer
    prices: Prices
    bases: BaseFolders
    rates: Rates
    engine: ChatEngine  # answers questions
    traffic: Traffic  # counts answers of deployments
    audit: AuditNotes  # keeps who did what
    log: Log
    clock: Clock
    health: Health  # health of the hosts of this process
    draw: Callable[[int], bytes]  # random bytes for identifiers, keys and seeds
    bases_dir: Path  # folders of base models that were uploaded; nodes must be able to read them

    def fresh(self, prefix: str) -> str:
        """An identifier that cannot be guessed."""
        return prefix + self.draw(12).hex()

    def unseal(self, sealed: Sealed | None, field: SealedField) -> str | None:
        """A sealed column of a read model as text."""
        return None if sealed is None else self.seal.open(sealed, field)

    async def decide(
        self,
        caller: "Principal",
        stream: Stream,
        command: Message,
        *,
        tenant: str | None = None,
        key: str | None = None,
        partition: int | None = None,
        idempotency: Idempotency | None = None,
    ) -> CommandResult:
        """Send a command with the caller as its actor, and return its result.

        tenant: whose journal gets it, None: the caller's. key: of the stream, None: the tenant.
        Raises ApiError as `CommandSender.decide` does.
        """
        tenant = caller.tenant if tenant is None else tenant
        return await self.commands.decide(
            stream,
            tenant,
            command,
            key=key,
            partition=partition,
            idempotency=idempotency,
            actor=self.seal.seal(tenant, caller.key_id, "actor"),
        )

    async def decide_everywhere(
        self, caller: "Principal", stream: Stream, command: Message
    ) -> None:
        """Send a command about the installation to every partition of a stream. Raises ApiError."""
        actor = self.seal.seal(caller.tenant, caller.key_id, "actor")
        decisions = (
            self.commands.decide(stream, GLOBAL, command, partition=partition, actor=actor)
            for partition in range(PARTITIONS)
        )
        for result in await asyncio.gather(*decisions, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


@dataclass(frozen=True)
class Principal:
    """The caller: an API key of a tenant. `key_id` is written on the log as the actor."""

    tenant: str
    key_id: str
    scopes: frozenset[str]
    models: frozenset[str] | None = None  # the base models it may train, None: all
    cap: KeyCap | None = None  # what its jobs may cost in a month
    per_minute: int | None = None  # its limit of requests per minute; None: the default
    sha256: str = ""  # hash of the secret that was sent
    # the row of a batch is asked: other questions come first, and the batch counts its tokens
    in_batch: bool = False

    @property
    def rows(self) -> dict[str, Any]:
        """The columns by which the rows of its tenant are found."""
        return {"tenant": self.tenant}


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps


async def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


async def _admin(request: Request) -> Principal:
    principal = await _principal(request)
    require(principal, ADMIN_SCOPE)
    request.state.operator = True
    return principal


def require(principal: Principal, scope: str) -> None:
    """Raises ApiError 403."""
    if not allows(principal.scopes, scope):
        message = f"This key has no {scope!r} scope. Use another key, or create one with it."
        raise ApiError(403, FORBIDDEN, message)


WithDeps = Annotated[Deps, Depends(_deps)]
Caller = Annotated[Principal, Depends(_principal)]
Admin = Annotated[Principal, Depends(_admin)]
