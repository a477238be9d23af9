"""Commands sent twice are decided once. Pure; a fold of what the journal's entries carry.

Reactions: per source partition, only what is above the last (incarnation, offset, index).
Clients: HMAC of the idempotency key and of the body, kept 30 days of `at`, never by count.
Effects: by lease or state, in the deciders.
"""

from typing import Any, Final

from immutables import Map
from msgspec import Struct, structs

from schemas import errors
from schemas.envelope import Entry, Envelope, Idempotency, Rejected, Repeated, Source
from schemas.units import DAY_MS, Ms

KEPT_MS: Final = 30 * DAY_MS
BY_BODY_MS: Final = 10 * 60_000  # without a header, an SDK's retries come within minutes
IDS_MAX: Final = 8  # command ids remembered per key, against a copy that arrives late


class Client(Struct, frozen=True, array_like=True, gc=False):
    """Last commands under one idempotency key of a client."""

    at: Ms
    body: str
    ids: tuple[str, ...]  # newest first
    refused: bool
    alone: bool  # a retry was decided, and the request that it repeats has not been seen yet


class Seen(Struct, frozen=True, gc=False):
    """What duplicates of commands are recognised by."""

    sources: Map[str, tuple[int, int, int]] = Map()
    clients: Map[str, Client] = Map()
    day: int = 0  # day of the last pruning, since the epoch


class Repeat(Struct, frozen=True):
    """The command was decided before, as command `of`."""

    of: str


class Conflict(Struct, frozen=True):
    """The key was used with another body."""


def recognise(seen: Seen, envelope: Envelope, at: Ms) -> Repeat | Conflict | None:
    """None: the command is new."""
    if envelope.source is not None:
        last = seen.sources.get(_origin(envelope.source))
        return (
            Repeat(envelope.id)
            if last is not None and _source_position(envelope.source) <= last
            else None
        )
    if envelope.idempotency is not None:
        client = seen.clients.get(_slot(envelope.tenant, envelope.idempotency))
        if client is not None:
            return _compare(client, envelope.id, envelope.idempotency, at)
    return None


def _compare(
    client: Client, command_id: str, idempotency: Idempotency, at: Ms
) -> Repeat | Conflict | None:
    if at - client.at > KEPT_MS:
        return None
    if command_id in client.ids:
        return Repeat(command_id)
    if client.refused:  # nothing came of it: another try deserves another decision
        return None
    if idempotency.by_body:
        related = idempotency.retry or client.alone
        return Repeat(client.ids[0]) if related and at - client.at <= BY_BODY_MS else None
    return Repeat(client.ids[0]) if idempotency.body == client.body else Conflict()


def remember(seen: Seen, entry: Entry, events: tuple[Any, ...]) -> Seen:
    """State after an accepted entry."""
    if entry.source is not None:
        origin, position = _origin(entry.source), _source_position(entry.source)
        last = seen.sources.get(origin)
        if last is None or position > last:
            return structs.replace(seen, sources=seen.sources.set(origin, position))
        return seen
    if entry.idempotency is None:
        return seen
    return _remember_client(_forget_old(seen, entry.at), entry, entry.idempotency, events)


def _remember_client(
    seen: Seen, entry: Entry, idempotency: Idempotency, events: tuple[Any, ...]
) -> Seen:
    slot = _slot(entry.tenant, idempotency)
    client = seen.clients.get(slot)
    match events:
        case (Repeated(),):
            if client is None or not client.alone or idempotency.retry:
                return seen
            met = structs.replace(client, alone=False)
            return structs.replace(seen, clients=seen.clients.set(slot, met))
        case (Rejected(code=errors.IDEMPOTENCY_CONFLICT),):
            return seen
        case _:
            refused = bool(events) and isinstance(events[0], Rejected)
    earlier = client.ids[: IDS_MAX - 1] if client is not None else ()
    alone = idempotency.by_body and idempotency.retry
    now = Client(entry.at, idempotency.body, (entry.command_id, *earlier), refused, alone)
    return structs.replace(seen, clients=seen.clients.set(slot, now))


def _forget_old(seen: Seen, at: Ms) -> Seen:
    """Drop whole days past keeping; at most once a day of `at`."""
    today = at // DAY_MS
    if today == seen.day:
        return seen
    kept = seen.clients.mutate()
    for slot, client in seen.clients.items():
        if (client.at // DAY_MS + 1) * DAY_MS + KEPT_MS < at:
            del kept[slot]
    return structs.replace(seen, clients=kept.finish(), day=today)


def _origin(source: Source) -> str:
    return f"{source.stream}/{source.partition}"


def _source_position(source: Source) -> tuple[int, int, int]:
    return source.incarnation, source.offset, source.index


def _slot(tenant: str, idempotency: Idempotency) -> str:
    return f"{tenant}/{'body' if idempotency.by_body else 'key'}/{idempotency.key}"
