"""The frame around every command and every journal record, the same for all streams."""

from typing import Annotated, ClassVar, Final, TypeAlias, dataclass_transform

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from schemas.sealed import Sealed
from schemas.units import Ms

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)
FIRST_LEVEL: Final = 1  # of the log, see `levels`
Sha256: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


def versioned(name: str) -> str:
    """Tag of a message on the wire: `JobEnded` is `JobEnded.v1`, `JobEndedV2` is `JobEnded.v2`."""
    stem, mark, version = name.rpartition("V")
    return f"{stem}.v{version}" if mark and version.isdigit() else f"{name}.v1"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Message(Struct, frozen=True, kw_only=True, tag=versioned, tag_field="type", gc=False):
    """Base of all commands and events."""

    SINCE: ClassVar[int] = FIRST_LEVEL  # lowest level of the log at which it is written
    # Older releases read past this event, at any level. Only for an event that no fold and no
    # reaction needs.
    SKIPPABLE: ClassVar[bool] = False


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Part(Struct, frozen=True, kw_only=True, gc=False):
    """Base of the nouns inside commands and events."""


class Reason(Part):
    """Why something is as it is: a code for programs, and what fills the words for people."""

    code: str  # one of `schemas.reasons`. It keeps its meaning for ever.
    params: dict[str, str | int] = {}  # values for the words; the unit ends each name


# --- commands -------------------------------------------------------------------------------------


class Source(Struct, frozen=True, array_like=True, gc=False):
    """Origin of a reaction. The target drops reactions that are not above the last one it
    processed.
    """

    stream: str
    partition: int
    incarnation: int
    offset: int
    index: int


class Idempotency(Struct, frozen=True, kw_only=True, gc=False):
    """Identity by which a repeat of a client's command is recognised."""

    key: str  # HMAC of the `Idempotency-Key` header, or of the body where the client sent none
    body: str  # HMAC of the canonical body
    # no header was sent, so only an SDK retry (`retry`) within ten minutes counts as a repeat, in
    # either arrival order
    by_body: bool = False
    retry: bool = False


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A command on its way to the owner of a stream. `body` is decoded with the stream's union."""

    id: str
    key: str
    tenant: str
    body: Raw
    source: Source | None = None
    idempotency: Idempotency | None = None
    actor: Sealed | None = None
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None
    # sender, signature: who sends it, and its proof over all bytes before; always the last fields
    sender: str | None = None
    signature: str | None = None


# --- journal --------------------------------------------------------------------------------------


class Claim(Struct, frozen=True, kw_only=True, tag="claim", tag_field="record", gc=False):
    """`owner` takes the partition; the claim's own offset is its epoch.

    Only an operator's claim carries `base`, the logical cause that the command at physical offset 0
    has; its offset becomes the incarnation. An operator may give a signed `RefusalOrder` instead.
    """

    owner: str
    nonce: str
    base: int | None = None
    refusal: Raw | UnsetType = UNSET


class RefusalOrder(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An operator's order to refuse one command that the owner of its stream cannot decide."""

    cause: int  # its logical number
    command_hash: str  # BLAKE2b of its bytes, so that no other one is refused
    reason: Reason  # its parameters are the operator's name and own words
    # sender, signature: see `Envelope`, for the stream of the command
    sender: str | None = None
    signature: str | None = None


class Entry(
    Struct, frozen=True, kw_only=True, tag="entry", tag_field="record", omit_defaults=True, gc=False
):
    """The one record that a command leads to. `events` are decoded with the stream's union."""

    epoch: int
    cause: int
    prev: bytes
    at: Ms
    command_id: str
    key: str
    tenant: str
    seq: int
    events: tuple[Raw, ...] = ()
    source: Source | None = None
    idempotency: Idempotency | None = None
    actor: Sealed | None = None
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None
    opened: int | None = None  # `cause` of the last record that counts before the owner's claim
    # who has sent the command, where that was checked: a service, or `node.` and its id
    sender: str | None = None
    level: int = FIRST_LEVEL  # of the log when this was decided; within a partition it never falls
    skippable: tuple[int, ...] = ()  # which of `events` a reader may skip that does not know them


JournalRecord: TypeAlias = Claim | Entry


class Header(Struct, frozen=True, kw_only=True, gc=False):
    """Metadata of an accepted entry that readers get with its events."""

    stream: str
    partition: int
    offset: int
    at: Ms
    key: str
    tenant: str
    seq: int
    command_id: str
    incarnation: int
    correlation: str | None = None
    traceparent: str | None = None
    actor: Sealed | None = None
    level: int = FIRST_LEVEL  # of the log when this was decided


class Context(Struct, frozen=True, kw_only=True, gc=False):
    """Input of a decision besides state and command; the fold of its events gets the same."""

    at: Ms
    key: str
    tenant: str
    command_id: str
    seq: int
    sender: str | None = None  # a service, or `node.` and its id; None: it was not verified
    level: int = FIRST_LEVEL  # of the log: no event is written that came later (`schemas.levels`)


# --- events every stream has ----------------------------------------------------------------------


class Rejected(Message):
    """The command is refused; nothing changed."""

    code: str  # one of `schemas.errors`, which clients rely on
    reason: Reason  # what exactly is wrong
    param: str | None = None  # the request's field that it is about, as in the API


def reject(code: str, reason: Reason, param: str | None = None) -> tuple[Rejected, ...]:
    """Return the events of a decider that refuses a command, built from the arguments of
    `Rejected`.
    """
    return (Rejected(code=code, reason=reason, param=param),)


class Repeated(Message):
    """The command was decided before, as command `of`."""

    of: str


class Tick(Message):
    """Sent by a partition's own host when a deadline in its state is due."""
