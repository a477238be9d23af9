"""The five verbs as types: what a service hands to the hosts.

decide, evolve, react and project are pure functions; effect does I/O and answers with a command.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from schemas.envelope import Context, Header, Message
from schemas.streams import GLOBAL, Stream
from schemas.units import Ms
from tunery.runtime.backoff import Backoff

S = TypeVar("S")
B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)
Json: TypeAlias = Any
RETRIES: Final = Backoff(1_000, 60_000)  # of effects without their own schedule


class TimedPart(NamedTuple):
    """Owner of a deadline: a key, or with `name` one of the many items under that key."""

    key: str
    name: str = ""


@dataclass(frozen=True)
class Deadlines(Generic[S]):
    """When the keys of a state want a `Tick`.

    The owner of a partition keeps the deadlines in a heap with its fold, so a record costs what
    it changes, however many keys there are. Most aggregates use `deadlines_by_key`.
    """

    at: Callable[[S, TimedPart], Ms | None]  # the deadline of a part; None: it has none
    # every part that may have one. The owner goes through all of them once, at its claim.
    parts: Callable[[S], Iterable[TimedPart]]
    # parts whose deadline an event of a key may have set, or moved to an earlier time. One that
    # moved to a later time, or is gone, needs no mention: before a tick is sent, the owner asks
    # `at` once more.
    changed: Callable[[S, str, Any], Iterable[TimedPart]]


def deadlines_by_key(
    keys: Callable[[S], Iterable[str]], deadline_of: Callable[[S, str], Ms | None]
) -> Deadlines[S]:
    """Deadlines of an aggregate whose keys have one deadline each.

    keys: all keys of a state.
    deadline_of: the earliest deadline of a key; None: it has none. It is asked for the key of each
        record, and for all keys after a global record, so it must not go through other keys.
    """

    def parts(state: S) -> Iterable[TimedPart]:
        return (TimedPart(key) for key in keys(state))

    def changed(state: S, key: str, _: Any) -> Iterable[TimedPart]:
        return parts(state) if key == GLOBAL else (TimedPart(key),)

    return Deadlines(lambda state, part: deadline_of(state, part.key), parts, changed)


@dataclass(frozen=True)
class Aggregate(Generic[S]):
    """A stream's decider. `S` is the state of one partition: all keys of it, in persistent maps."""

    stream: Stream
    fold_version: int  # raised whenever `evolve` changes, so that old snapshots are not used
    initial: S
    # type that snapshots are decoded to (msgspec structs, tuples, maps of immutables)
    state_type: Any
    decide: Callable[[S, Any, Context], tuple[Message, ...]]
    evolve: Callable[[S, Any, Context], S]
    deadlines: Deadlines[S] | None = None  # when keys want a `Tick`; None: never
    # tenant of a key, for events of its ticks; None: the key is the tenant, or has none
    tenant_of: Callable[[S, str], str] | None = None


@dataclass(frozen=True)
class Send:
    """A command for another stream. The host adds its id and its source.

    `partition` is set for global facts only: one command for each partition.
    """

    stream: str
    key: str
    tenant: str
    body: Message
    partition: int | None = None


React: TypeAlias = Callable[[Header, Any], tuple[Send, ...]]


class Upsert(Struct, frozen=True, gc=False):
    """Insert the row, or set just these values where the key exists already."""

    table: str
    key: Mapping[str, Json]
    values: Mapping[str, Json] = {}


class Delete(Struct, frozen=True, gc=False):
    """Delete the row with this key, or all rows that have these columns of a wider key."""

    table: str
    key: Mapping[str, Json]


class Todo(Struct, frozen=True, gc=False):
    """A row of the service's to-do list; `body` is what the effect of this kind gets."""

    kind: str
    id: str
    key: str
    tenant: str
    body: Message
    # correlation, traceparent: those of the entry that it follows from; the projector fills them in
    correlation: str | None = None
    traceparent: str | None = None


class Done(Struct, frozen=True, gc=False):
    kind: str
    id: str


Change: TypeAlias = Upsert | Delete | Todo | Done
Project: TypeAlias = Callable[[Header, Any], tuple[Change, ...]]


class RetryLater(Exception):
    """Raised by an effect that failed in an expected way: it is retried without a traceback.

    `delay_ms_min`: the pause that the other side asked for; the schedule may wait longer.
    """

    def __init__(self, why: str, delay_ms_min: Ms = 0) -> None:
        super().__init__(why)
        self.delay_ms_min = delay_ms_min


class Outage(Exception):
    """Base of errors that say: a server of the installation does not answer. No failed try."""


class GoOnLater(Exception):
    """Raised by an effect whose work is not over: it is run again after this pause, and this run
    was no failed try. `counts`: the next run has the next number all the same.
    """

    def __init__(self, delay_ms: Ms, *, counts: bool = False) -> None:
        super().__init__("the work goes on later")
        self.delay_ms, self.counts = delay_ms, counts


class RunEffect(Protocol[B_contra]):
    """Does the work of one to-do row: its body, its tenant, the number of this try from 1.

    Returns the command that carries the outcome. None: there is none to send; the row of an
    `unrecorded` effect is then removed, any other when the log says so.
    """

    def __call__(
        self, body: B_contra, tenant: str, try_number: int = 1, /
    ) -> Awaitable[Send | None]: ...


@dataclass(frozen=True)
class Effect(Generic[B]):
    """I/O for the to-do rows of one kind."""

    # kind, body: the kind of row, and the type that its body is decoded to
    kind: str
    body: type[B]
    # does the work. A rebuilt to-do list has removed rows again, so doing one twice must be
    # harmless: effects write content-named objects, and deciders accept the first outcome.
    run: RunEffect[B]
    # the command that ends the saga after `tries_max` failed tries; it gets body, tenant and the
    # last failure; None: there is none; an `unrecorded` effect is then given up, any other is tried
    # again for ever, and alerts
    exhausted: Callable[[B, str, str], Send] | None = None
    # no event ends its rows, so the log does not show which are left. Only for work that may be
    # done again and that no saga waits for.
    unrecorded: bool = False
    row_lease_ms: Ms = 600_000  # how long a row is this process's without renewal
    concurrency: int = 2  # rows of this kind in work at the same time in one process
    # tries_max, delay_ms: the retry schedule: how many tries, and the pause after the n-th failed
    # one. An outage of our own servers is not counted as a try.
    tries_max: int = 5
    delay_ms: Callable[[int], Ms] = RETRIES.delay_ms
    # rows of one tenant in work at the same time, in all processes; None: any number
    of_tenant_max: int | None = None

    @property
    def may_give_up(self) -> bool:
        """False if only an event ends its rows and no command of its own leads to one."""
        return self.exhausted is not None or self.unrecorded
