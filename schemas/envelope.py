"""The frame around every command and every journal record, the same for all streams."""

from typing import Annotated, TypeAlias, dataclass_transform

from msgspec import Meta, Raw, Struct, field

from schemas.sealed import Sealed
from schemas.units import Ms

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)
Sha256: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


def versioned(name: str) -> str:
    """Tag of a message on the wire: `JobEnded` is `JobEnded.v1`, `JobEndedV2` is `JobEnded.v2`."""
    stem, mark, version = name.rpartition("V")
    return f"{stem}.v{version}" if mark and version.isdigit() else f"{name}.v1"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Message(Struct, frozen=True, kw_only=True, tag=versioned, tag_field="type", gc=False):
    """Base of all commands and events."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Part(Struct, frozen=True, kw_only=True, gc=False):
    """Base of the nouns inside commands and events."""


class Reason(Part):
    """Why something is as it is: a code that programs compare, and what fills the words for people.

    code: one of `schemas.reasons`. It keeps its meaning for ever.
    params: values for the words; the unit ends each name.
    """

    code: str
    params: dict[str, str | int] = {}


# --- commands -------------------------------------------------------------------------------------


class Source(Struct, frozen=True, array_like=True, gc=False):
    """Where a reaction comes from; the target drops what is not above the last one it decided."""

    stream: str
    partition: int
    incarnation: int
    offset: int
    index: int


class Idempotency(Struct, frozen=True, kw_only=True, gc=False):
    """How a client's command is recognised when it comes twice.

    key: HMAC of the `Idempotency-Key` header, or of the body where the client sent none.
    body: HMAC of the canonical body. by_body: no header was sent, so only an SDK retry (`retry`)
    within ten minutes counts as a repeat, in either arrival order.
    """

    key: str
    body: str
    by_body: bool = False
    retry: bool = False


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A command on its way to the owner of a stream. `body` is decoded with the stream's union.

    sender, signature: who sends it, and its proof over all bytes before; always the last fields.
    """

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
    sender: str | None = None
    signature: str | None = None


# --- journal --------------------------------------------------------------------------------------


class Claim(Struct, frozen=True, kw_only=True, tag="claim", tag_field="record", gc=False):
    """`owner` takes the partition; the claim's own offset is its epoch.

    Only an operator's claim carries `base`, the logical cause that the command at physical offset 0
    has; its offset becomes the incarnation.
    """

    owner: str
    nonce: str
    base: int | None = None


class Entry(
    Struct, frozen=True, kw_only=True, tag="entry", tag_field="record", omit_defaults=True, gc=False
):
    """The one record that a command leads to. `events` are decoded with the stream's union.

    opened: `cause` of the last record that counts before the owner's claim.
    sender: who has sent the command, where that was checked: a service, or `node.` and its id.
    """

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
    opened: int | None = None
    sender: str | None = None


JournalRecord: TypeAlias = Claim | Entry


class Header(Struct, frozen=True, kw_only=True, gc=False):
    """What readers know about an accepted entry besides its events."""

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


class Context(Struct, frozen=True, kw_only=True, gc=False):
    """What a decision may know besides state and command; the fold of its events sees the same.

    sender: a service, or `node.` and its id; None: it was not checked.
    """

    at: Ms
    key: str
    tenant: str
    command_id: str
    seq: int
    sender: str | None = None


# --- events every stream has ----------------------------------------------------------------------


class Rejected(Message):
    """The command is refused; nothing changed.

    code: one of `schemas.errors`, which clients rely on.
    reason: what exactly is wrong.
    param: the request's field that it is about, as in the API.
    """

    code: str
    reason: Reason
    param: str | None = None


def reject(code: str, reason: Reason, param: str | None = None) -> tuple[Rejected, ...]:
    """What a decider returns that refuses a command. The arguments are those of `Rejected`."""
    return (Rejected(code=code, reason=reason, param=param),)


class Repeated(Message):
    """The command was decided before, as command `of`."""

    of: str


class Tick(Message):
    """Sent by a partition's own host when a deadline in its state is due."""
