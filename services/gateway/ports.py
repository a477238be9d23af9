"""Ports of the gateway: read models, rates, prices, base models, engine, traffic, audit."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from schemas.audit import AuditEntry
from schemas.billing import PriceBook
from schemas.deployments import ArmTraffic, Deployment
from schemas.model import Base
from services.gateway.views.table import R, Table
from services.gateway.web.token_bucket import MINUTE_US, Allowance
from tunery.runtime.hosts.abstract import Host
from tunery.work.engine import Question, Reply


@dataclass(frozen=True)
class IntRange:
    """The integers [first, end)."""

    first: int
    end: int


# column → the value it must have, a tuple of the values it may have, or a span of them
Where: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Cursor:
    """A page's start: the row after the one with this value of the order column and this id."""

    order: Any
    id: str


@dataclass(frozen=True)
class Buckets:
    """The values [first, end) of a column of integers, cut at the multiples of `width`."""

    column: str
    first: int
    end: int
    width: int


class Views(Protocol):
    """Reads of the read models. Raises ApiError 503 when they cannot be reached in time."""

    async def first(self, table: Table[R], where: Where) -> R | None:
        """The first row that matches, in the table's order."""
        rows = await self.page(table, where, limit=1, descending=False)
        return rows[0] if rows else None

    async def page(
        self,
        table: Table[R],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[R]:
        """Up to `limit` rows by (order column, id)."""

    async def sums(
        self,
        table: Table[R],
        where: Where,
        buckets: Buckets,
        *,
        by: Sequence[str],
        of: Sequence[str],
        limit: int,
    ) -> Sequence[Mapping[str, Any]]:
        """Sums of the columns `of` in each bucket, for each combination of the columns `by`.

        Up to `limit` records of `by`, `of`, `rows` (how many there are) and `bucket`, the first
        value that the bucket may have.
        """


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
        """Ask a question whose answer nobody waits for; False: too many are being asked."""


class AuditNotes(Host, Protocol):
    """Keeps who did what. It never delays or fails a request."""

    def note(self, entry: AuditEntry) -> None:
        """Keep an entry; equal ones within a while are counted in one."""


class Engine(Protocol):
    def ask(self, question: Question) -> AsyncGenerator[Reply, None]:
        """The parts of one answer; the last one ends or refuses it. Raises ApiError 503.

        Closing the generator stops the answer.
        """
