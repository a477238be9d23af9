"""The five verbs as types: what a service hands to the hosts.

decide, evolve, react and project are pure functions; effect does I/O and answers with a command.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from schemas.envelope import Context, Header, Message
from schemas.topics import Stream
from schemas.units import Ms

S = TypeVar("S")
B = TypeVar("B")
Json: TypeAlias = Any


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
    `state_type` is what snapshots are decoded to (msgspec structs, tuples, `immutables.Map`).
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
    """A command for another stream. Its id and source are the host's business.

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
    table: str
    key: Mapping[str, Json]


class Todo(Struct, frozen=True, gc=False):
    """A row of the service's to-do list; `body` is what the effect of this kind gets."""

    kind: str
    id: str
    key: str
    tenant: str
    body: Message


class Done(Struct, frozen=True, gc=False):
    kind: str
    id: str


Change: TypeAlias = Upsert | Delete | Todo | Done
Project: TypeAlias = Callable[[Header, Any], tuple[Change, ...]]


@dataclass(frozen=True)
class Effect(Generic[B]):
    """I/O for one to-do row.

    `run(body, tenant)` answers with the command that carries the outcome. None: nothing to say, the
    row is removed at once; a rebuilt to-do list has it again, so doing it twice must be harmless.
    What it raises is retried with back-off, `attempts_max` times; then `exhausted(body, tenant,
    failure)` says what to send, so that no saga hangs on a dead row. Effects may overlap and
    repeat: they write content-named objects, and deciders accept the first outcome.
    """

    kind: str
    body: type[B]
    run: Callable[[B, str], Awaitable[Send | None]]
    exhausted: Callable[[B, str, str], Send | None]
    lease_ms: Ms = 600_000
    concurrency: int = 2
    attempts_max: int = 5
