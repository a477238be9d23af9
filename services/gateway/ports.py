"""Ports of the gateway: rates, prices, base models, engine, traffic, audit."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from schemas.audit import AuditEntry
from schemas.billing import PriceBook
from schemas.deployments import ArmTraffic, Deployment
from schemas.model import Base
from services.gateway.web.domain.token_bucket import MINUTE_US, Allowance
from tunery.runtime.hosts.abstract import Host
from tunery.work.engine import EngineReply, Question


class Rates(Protocol):
    """Token buckets by name. A bucket has `limit` tokens and refills within its window."""

    async def take(self, name: str, limit: int, window_us: int = MINUTE_US) -> Allowance:
        """Take one token if there is one. `window_us`: by default a minute."""

    async def close(self) -> None: ...


class Prices(Protocol):
    async def book(self, version: str) -> PriceBook | None:
        """One version of the price book."""

    async def newest(self, today: str) -> PriceBook | None:
        """The one that new tenants get, None: none is in force. `today`: like 2026-11-22."""


class BaseFolders(Protocol):
    async def read(self, base_id: str, path: str, licence: str) -> Base:
        """Describe a base model's folder, hashing its files. Raises ApiError 400."""


class Traffic(Host, Protocol):
    """Counts what the versions of deployments answer."""

    def note(
        self, tenant: str, deployment: Deployment, answered: ArmTraffic, bucket: int | None
    ) -> None:
        """Count an answer, and the caller's bucket where the caller has seen it."""

    def ask_aside(self, tenant: str, ask: Callable[[], Awaitable[None]]) -> bool:
        """Ask a question in the background and drop its answer; False: too many are running."""


class AuditNotes(Host, Protocol):
    """Keeps who did what. It never delays or fails a request."""

    def note(self, entry: AuditEntry) -> None:
        """Keep an entry; equal ones within a while are counted in one."""


class ChatEngine(Protocol):
    def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        """The parts of one answer; the last one ends or refuses it. Raises ApiError 503.

        Closing the generator stops the answer.
        """
