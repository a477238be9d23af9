"""Dependencies of all routes, and the caller of a request."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from schemas.account import ADMIN_SCOPE
from schemas.sealed import Sealed, SealedField
from schemas.submission import KeyCap
from services.gateway.ports import AuditNotes, BaseFolders, Engine, Prices, Rates, Traffic, Views
from services.gateway.settings import GatewaySettings
from services.gateway.web.commands import CommandSender
from services.gateway.web.errors import FORBIDDEN, ApiError
from services.gateway.web.scopes import allows
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.clock import Clock
from tunery.runtime.health import Health
from tunery.runtime.seal.sealer import Sealer


@dataclass(frozen=True)
class Deps:
    """Dependencies of every route.

    engine: answers questions. traffic: counts answers of deployments. audit: keeps who did what.
    health: of the hosts of this process. draw: random bytes for identifiers, keys and seeds.
    bases_dir: folders of base models that were uploaded; nodes must be able to read them.
    """

    settings: GatewaySettings
    views: Views
    commands: CommandSender
    blobs: Blobs
    seal: Sealer
    prices: Prices
    bases: BaseFolders
    rates: Rates
    engine: Engine
    traffic: Traffic
    audit: AuditNotes
    log: Log
    clock: Clock
    health: Health
    draw: Callable[[int], bytes]
    bases_dir: Path

    def fresh(self, prefix: str) -> str:
        """An identifier that cannot be guessed."""
        return prefix + self.draw(12).hex()

    def unseal(self, sealed: Sealed | None, field: SealedField) -> str | None:
        """A sealed column of a read model as text."""
        return None if sealed is None else self.seal.open(sealed, field)


@dataclass(frozen=True)
class Principal:
    """The caller: an API key of a tenant. `key_id` is written on the log as the actor.

    models: the base models it may train, None: all. cap: what its jobs may cost in a month.
    per_minute: requests; None: the default. sha256: of the secret that was sent.
    """

    tenant: str
    key_id: str
    scopes: frozenset[str]
    models: frozenset[str] | None = None
    cap: KeyCap | None = None
    per_minute: int | None = None
    sha256: str = ""


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
