"""Port of a service's views, positions and to-do rows. All of it can be rebuilt from the log.

A projection owns its tables. For each partition it reads it has one position, and rows and
position change together or not at all. Writers compare the position they started from: of two
that do the same work one wins and the other's batch does nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from schemas.units import Ms
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.verbs import Change

if TYPE_CHECKING:
    import asyncpg

FAILURE_CHARACTERS_MAX: Final = 2_000
OUTCOMES_CHANNEL: Final = "outcomes"
TODOS_CHANNEL: Final = "todos"
Place: TypeAlias = tuple[str, int]  # (stream, partition)
Row: TypeAlias = Mapping[str, Any]


class StoreError(Exception):
    """Base of what the store raises."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or broke off: whether a commit happened is unknown."""


class Superseded(StoreError):
    """A newer version of this projection owns the tables; this process must not write them."""

    def __init__(self, projection: str, version: int, found: int) -> None:
        super().__init__(
            f"projection {projection} is at version {found}, this process has version {version}; "
            "start the newer release"
        )
        self.projection, self.version, self.found = projection, version, found


class BadChange(StoreError):
    """The database refused a change (unknown column, wrong type, a constraint): a bug of ours."""


class Committed(Enum):
    DONE = "done"
    STALE = "stale"  # another process was first; nothing of this batch was written


@dataclass(frozen=True)
class Tables:
    """What a projection needs to exist. A higher `version` drops `tables` and starts again.

    `ddl` is run at every start, so it says IF NOT EXISTS everywhere.
    """

    projection: str
    version: int
    places: tuple[Place, ...]
    ddl: str = ""
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Saved:
    """A stored position; `caught_up`: effects of this projection may run."""

    position: Position = START
    caught_up: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one command. Without `code` and `repeated_of` it was accepted.

    `code`, `message`, `param` are those of the rejection.
    """

    command_id: str
    stream: str
    partition: int
    offset: int
    at: Ms
    tenant: str
    key: str
    seq: int
    code: str | None = None
    message: str | None = None
    param: str | None = None
    repeated_of: str | None = None


@dataclass(frozen=True)
class Batch:
    """Everything that entries of one partition, from `expected` up to `position`, lead to.

    `notices` are sent to the projection's channel (its name) when the batch is in.
    """

    projection: str
    version: int
    place: Place
    expected: int
    position: Position
    changes: Sequence[Change] = ()
    outcomes: Sequence[Outcome] = ()
    notices: Sequence[str] = ()


@dataclass(frozen=True)
class Leased:
    """A to-do row that this process may work on until its lease ends.

    `attempt` counts leases, this one included, from 1. `token` tells this lease from later ones.
    `failure` is what the last attempt that failed left.
    """

    kind: str
    id: str
    key: str
    tenant: str
    attempt: int
    token: str
    body: bytes = field(repr=False)
    failure: str | None = None


class Store(Protocol):
    """One service's database. Every method raises StoreUnavailable."""

    @property
    def pool(self) -> "asyncpg.Pool[Any]":
        """Connections with the service's schema as search path, for queries of its own.

        jsonb columns and parameters are Python values. The store in memory has none and raises
        NotImplementedError.
        """

    async def ensure(self, tables: Tables) -> bool:
        """Make the tables; True when the projection starts from zero. Raises Superseded."""

    async def rebuild(self, tables: Tables) -> None:
        """Clear the flags, empty the tables and to-do rows, set all positions to zero."""

    async def positions(self, projection: str) -> Mapping[Place, Saved]:
        """Of every place that `ensure` was told of."""

    async def commit(self, batch: Batch) -> Committed:
        """All or nothing. Raises BadChange, Superseded."""

    async def set_caught_up(self, projection: str, place: Place, flag: bool) -> None: ...

    async def lease(self, kind: str, count: int, lease_ms: Ms) -> Sequence[Leased]:
        """Up to `count` rows that are due and free; none of a projection that is not caught up in
        all its places.

        Tenants take turns: first come rows of the tenant that has the fewest leased, so that a
        long queue of one does not delay the first row of another. Within a tenant oldest first.
        """

    async def renew(self, leased: Leased, lease_ms: Ms) -> bool:
        """False when the row is gone, or somebody else's: stop working on it."""

    async def release(
        self, leased: Leased, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        """Give the row back, not to be leased before `delay_ms` have passed.

        `counts` False takes this attempt back: an outage is not the row's fault.
        """

    async def finish(self, leased: Leased) -> None:
        """Remove a row whose effect has nothing to say, so that no event will."""

    async def outcome(self, command_id: str) -> Outcome | None: ...

    async def prune_outcomes(self, age_ms: Ms) -> int:
        """Remove outcomes written longer than `age_ms` ago; how many."""

    def listen(
        self, channel: str, heard: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        """Call `heard` with each notice while the context is open; with "" after a gap.

        Channels: OUTCOMES_CHANNEL (command ids), TODOS_CHANNEL (kinds), a projection's name.
        """

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        """Rows of a projection's table, for tests and verification; order is not defined."""

    async def close(self) -> None: ...
