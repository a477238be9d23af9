"""Port of a service's views, positions and to-do rows. All of it can be rebuilt from the log.

A projection owns its tables. For each partition it reads it has one position, and rows and
position change together or not at all. Writers compare the position they started from: of two
that do the same work one wins and the other's batch does nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from schemas.envelope import Reason
from schemas.units import Ms
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.telemetry.trail import NO_TRAIL, Trail
from tunery.runtime.verbs import Change

FAILURE_CHARACTERS_MAX: Final = 2_000
COMMAND_RESULTS_CHANNEL: Final = "command_results"
TODOS_CHANNEL: Final = "todos"
StreamPartition: TypeAlias = tuple[str, int]
"""Name of a stream, and the number of a partition of its journal."""
Row: TypeAlias = Mapping[str, Any]


class StoreError(Exception):
    """Base of what the store raises."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or broke off: whether a commit happened is unknown."""


class Superseded(StoreError):
    """A newer version of this projection owns the tables; this process must not write them."""

    def __init__(self, projection: str, version: int, stored_version: int) -> None:
        super().__init__(
            f"projection {projection} is at version {stored_version}, this process has version "
            f"{version}; start the newer release"
        )
        self.projection, self.version, self.stored_version = projection, version, stored_version


class BadChange(StoreError):
    """The database refused a change (unknown column, wrong type, a constraint): a bug of ours."""


class CommitResult(Enum):
    """The result of committing a batch."""

    DONE = "done"
    STALE = "stale"  # another process was first; nothing of this batch was written


@dataclass(frozen=True)
class Tables:
    """The tables and positions of a projection."""

    # projection, version: a version higher than the stored one drops `tables` and starts from zero
    projection: str
    version: int
    partitions: tuple[StreamPartition, ...]  # those it reads; each gets a position
    ddl: str = ""  # run at every start, so it says IF NOT EXISTS everywhere
    tables: tuple[str, ...] = ()  # the names of the tables that `ddl` creates


@dataclass(frozen=True)
class SavedPosition:
    """How far a projection has read one partition."""

    position: Position = START
    # it has read what the journal held, so effects of this projection may run
    caught_up: bool = False
    stopped: str | None = None  # why it needs an operator to read on


@dataclass(frozen=True)
class CommandResult:
    command_id: str
    # stream, partition, offset: the journal record that decided it
    stream: str
    partition: int
    offset: int
    at: Ms  # broker time of that record
    # tenant, key, seq: tenant, key and number of the command; `seq` numbers the key's entries
    tenant: str
    key: str
    seq: int
    # code, reason, param: parts of the rejection; all None when it was accepted
    code: str | None = None
    reason: Reason | None = None
    param: str | None = None
    repeated_of: str | None = None  # id of the earlier command that this one repeats, if it does


@dataclass(frozen=True)
class RowBatch:
    """Everything that the entries of one partition, from `expected` up to `position`, lead to."""

    # projection, version: the writer; a batch of another version is refused
    projection: str
    version: int
    partition: StreamPartition  # the journal partition that was read
    expected: int  # the offset that the stored position must have, or the batch is stale
    position: Position  # the new position
    changes: Sequence[Change] = ()  # changes of rows and to-do rows, in the order of the entries
    command_results: Sequence[CommandResult] = ()  # results of the commands that the batch decides
    notices: Sequence[str] = ()  # sent to the projection's channel (its name) once the batch is in

    @property
    def is_empty(self) -> bool:
        """True if the batch changes nothing but the position."""
        return not (self.changes or self.command_results or self.notices)


@dataclass(frozen=True)
class LeasedRow:
    """A to-do row that this process may work on until its row lease ends."""

    # kind, id: the row
    kind: str
    id: str
    # key, tenant: of the entry that it follows from
    key: str
    tenant: str
    try_number: int  # leases of the row that counted, this one included, from 1
    token: str  # distinguishes this row lease from later ones
    body: bytes = field(repr=False)  # JSON of what the effect gets
    failure: str | None = None  # why the last failed try failed
    trail: Trail = NO_TRAIL  # the request that the entry follows from


class Store(Protocol):
    """One service's database. Every method raises StoreUnavailable."""

    async def ensure(self, tables: Tables) -> bool:
        """Create the tables; True when the projection starts from zero. Raises Superseded."""

    async def rebuild(self, tables: Tables) -> None:
        """Clear the flags, empty the tables and to-do rows, set all positions to zero."""

    async def positions(self, projection: str) -> Mapping[StreamPartition, SavedPosition]:
        """Return the position of every partition that `ensure` was given for this projection."""

    async def commit(self, batch: RowBatch) -> CommitResult:
        """Apply all of the batch or nothing. Raises BadChange, Superseded."""

    async def set_caught_up(
        self, projection: str, partition: StreamPartition, flag: bool, stopped: str | None = None
    ) -> None:
        """Set whether effects may run on what the projection made of this partition.

        `lease_rows` gives no row of a projection while the flag of one of its partitions is down.
        stopped: why it needs an operator to read on; None: it reads on.
        """

    async def lease_rows(
        self, kind: str, count: int, row_lease_ms: Ms, of_tenant_max: int | None = None
    ) -> Sequence[LeasedRow]:
        """Up to `count` rows that are due and free, of projections that are caught up.

        Tenants take turns: first come rows of the tenant that has the fewest leased, so that a
        long queue of one does not delay the first row of another. Within a tenant oldest first.

        of_tenant_max: no rows of a tenant that has so many leased, by any process. Two processes
        that lease at the same moment may pass it together.
        """

    async def renew(self, row: LeasedRow, row_lease_ms: Ms) -> bool:
        """Prolong the row lease; False when it was lost or the row is gone: stop working on it."""

    async def release(
        self, row: LeasedRow, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        """Give the row back, not to be leased before `delay_ms` have passed.

        `counts` False takes this try back: an outage is not the row's fault.
        """

    async def finish(self, row: LeasedRow) -> None:
        """Remove a row whose effect has no command to send, so that no event will remove it."""

    async def command_result(self, command_id: str) -> CommandResult | None:
        """The result of a command; None while it is undecided, or after its row was pruned."""

    async def prune_command_results(self, age_ms: Ms) -> int:
        """Remove the results of commands written longer than `age_ms` ago; how many."""

    async def put_digest(self, partition: StreamPartition, offset: int, state_hash: str) -> None:
        """Keep the hash of an owner's state at a journal offset, in place of an earlier one."""

    def listen(
        self, channel: str, on_notice: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        """Call `on_notice` with each notice while the context is open; with "" after a gap.

        Channels: COMMAND_RESULTS_CHANNEL (command ids), TODOS_CHANNEL (kinds), a projection's name.
        """

    async def run_ddl(self, statements: str) -> None:
        """Run statements of SQL that make what is no table of a projection: views of reports."""

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        """Rows of a projection's table, for tests and verification; order is not defined."""

    async def close(self) -> None:
        """Free the connections; never waits for what is under way."""
