"""Fold of `session`."""

from typing import assert_never

from immutables import Map
from msgspec.structs import replace

from schemas.envelope import Context, Rejected, Repeated
from schemas.session import (
    QUIET_MS_MAX,
    CommandAnswered,
    CommandTaken,
    Event,
    SessionClosed,
    SessionEnding,
    SessionErased,
    SessionLeased,
    SessionOpened,
    SessionTermsSet,
    SessionTouched,
    name_of,
)
from schemas.units import Ms
from services.scheduler.domain.session.state import KnownCommand, Session, Sessions


def evolve(state: Sessions, event: Event, ctx: Context) -> Sessions:
    """Return the state after an event."""
    match event:
        case Rejected() | Repeated():
            return state
        case SessionOpened():
            opened = Session(
                tenant=ctx.tenant,
                terms=event.terms,
                price_version=event.price_version,
                touched_at=ctx.at,
            )
            return state.set(ctx.key, opened)
        case SessionClosed():
            closed = replace(state[ctx.key], commands=Map(), closed_at=ctx.at)
            return state.set(ctx.key, closed)
        case SessionErased():
            return state.delete(ctx.key)
        case _:
            return state.set(ctx.key, _evolve(state[ctx.key], event, ctx))


def _evolve(
    session: Session,
    event: SessionLeased
    | SessionTermsSet
    | CommandTaken
    | CommandAnswered
    | SessionTouched
    | SessionEnding,
    ctx: Context,
) -> Session:
    match event:
        case SessionLeased():
            return replace(session, attempt=event.attempt, node_ids=event.node_ids)
        case SessionTermsSet():
            return replace(session, terms=event.terms)
        case CommandTaken(command=command):
            known = KnownCommand(
                sha256=command.body.sha256,
                saved=command.saved,
                trained=command.trained,
                prefilled=command.prefilled,
            )
            counted = replace(
                session,
                commands=session.commands.set(command.name, known),
                tokens=session.tokens + command.tokens,
                waiting=session.waiting + 1,
                touched_at=ctx.at,
            )
            return counted if command.sampler else _with_next(counted)
        case CommandAnswered():
            known = replace(session.commands[event.name], answered=True)
            commands = session.commands.set(event.name, known)
            answered = replace(session, commands=commands, waiting=session.waiting - 1)
            if not event.saves:
                return answered
            return replace(answered, saves=event.saves, saved_bytes=event.saved_bytes)
        case SessionTouched():
            return replace(session, touched_at=ctx.at)
        case SessionEnding():
            return replace(session, ending=event.why, touched_at=ctx.at)
        case _:
            assert_never(event)


def _with_next(session: Session) -> Session:
    """Count up to the first number that has not come."""
    seq = session.next_seq
    while name_of("", seq) in session.commands:
        seq += 1
    return replace(session, next_seq=seq)


def due_at(state: Sessions, session_id: str) -> Ms | None:
    """Return when a session ends without a sign of its client, or that is repeated; of one that
    has ended, when it is erased.
    """
    session = state.get(session_id)
    if session is None:
        return None
    if session.closed_at is not None:
        return session.closed_at + session.terms.kept_ms
    return session.touched_at + QUIET_MS_MAX


def tenant_of(state: Sessions, session_id: str) -> str:
    """Return whose a session is; of one that is forgotten nothing follows."""
    return state[session_id].tenant if session_id in state else ""
