"""The five verbs as types: what a service hands to the hosts.

decide, evolve, react and project are pure functions; effect does I/O and answers with a command.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from schemas.envelope import Context, Header, Message
from schemas.topics import Stream
from schemas.units import Ms
from tunery.runtime.backoff import Backoff

S = TypeVar("S")
B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)
Json: TypeAlias = Any
RETRIES: Final = Backoff(1_000, 60_000)  # of effects without a schedule of their own


@dataclass(frozen=True)
class Deadline:
    """When the state of `key` wants a `Tick`."""

    at: Ms
    key: str


def no_deadline(_: Any) -> Deadline | None:
    return None


@dataclass(frozen=True)
class Aggregate(Generic[S]):
    """A stream's decider. `S` is the state of one partition: all keys of it, in persistent maps.

    `fold_version` is bumped whenever `evolve` changes, so that old snapshots are not used.
    `state_type` is what snapshots are decoded to (msgspec structs, tuples, maps of immutables).
    """

    stream: Stream
    fold_version: int
    initial: S
    state_type: Any
    decide: Callable[[S, Any, Context], tuple[Message, ...]]
    evolve: Callable[[S, Any, Context], S]
    deadline: Callable[[S], Deadline | None] = no_deadline


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
    """A row of the service's to-do list; `body` is what the effect of this kind gets.

    correlation, traceparent: of the entry that it follows from; the projector fills them in.
    """

    kind: str
    id: str
    key: str
    tenant: str
    body: Message
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


class GoOnLater(Exception):
    """Raised by an effect whose work is not over: it is run again after this pause, and this run
    was no failed try.
    """

    def __init__(self, delay_ms: Ms) -> None:
        super().__init__("the work goes on later")
        self.delay_ms = delay_ms


class RunEffect(Protocol[B_contra]):
    """Does the work of one to-do row: its body, its tenant, the number of this try from 1.

    Returns the command that carries the outcome; None: no command is sent, and the row is removed.
    """

    def __call__(
        self, body: B_contra, tenant: str, try_number: int = 1, /
    ) -> Awaitable[Send | None]: ...


@dataclass(frozen=True)
class Effect(Generic[B]):
    """I/O for the to-do rows of one kind.

    kind, body: the kind of row, and the type that its body is decoded to.
    run: does the work. A rebuilt to-do list has removed rows again, so doing one twice must be
        harmless: effects write content-named objects, and deciders accept the first outcome.
    exhausted: the command, if any, that ends the saga after `tries_max` failed tries; it gets body,
        tenant and the last failure.
    row_lease_ms: how long a row is this process's without renewal.
    concurrency: rows of this kind in work at the same time in one process.
    tries_max, delay_ms: the retry schedule: how many tries, and the pause after the n-th failed
        one. An outage of our own servers is not counted as a try.
    of_tenant_max: rows of one tenant in work at the same time, in all processes; None: any number.
    """

    kind: str
    body: type[B]
    run: RunEffect[B]
    exhausted: Callable[[B, str, str], Send | None]
    row_lease_ms: Ms = 600_000
    concurrency: int = 2
    tries_max: int = 5
    delay_ms: Callable[[int], Ms] = RETRIES.delay_ms
    of_tenant_max: int | None = None
