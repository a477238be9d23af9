"""Fold of `session`."""

from typing import assert_never

from msgspec.structs import replace

from schemas.envelope import Context, Rejected, Repeated
from schemas.session import (
    QUIET_MS_MAX,
    CommandAnswered,
    CommandTaken,
    Event,
    SessionClosed,
    SessionEnding,
    SessionLeased,
    SessionOpened,
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
            opened = Session(tenant=ctx.tenant, terms=event.terms, touched_at=ctx.at)
            return state.set(ctx.key, opened)
        case SessionClosed():
            return state.delete(ctx.key)
        case _:
            return state.set(ctx.key, _evolve(state[ctx.key], event, ctx))


def _evolve(
    session: Session,
    event: SessionLeased | CommandTaken | CommandAnswered | SessionTouched | SessionEnding,
    ctx: Context,
) -> Session:
    match event:
        case SessionLeased():
            return replace(session, attempt=event.attempt, node_ids=event.node_ids)
        case CommandTaken(command=command):
            known = KnownCommand(sha256=command.body.sha256, saved=command.saved)
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
            return replace(session, commands=commands, waiting=session.waiting - 1)
        case SessionTouched():
            return replace(session, touched_at=ctx.at)
        case SessionEnding():
            return replace(session, ending=True)
        case _:
            assert_never(event)


def _with_next(session: Session) -> Session:
    """Count up to the first number that has not come."""
    seq = session.next_seq
    while name_of("", seq) in session.commands:
        seq += 1
    return replace(session, next_seq=seq)


def quiet_at(state: Sessions, session_id: str) -> Ms | None:
    """Return when a session ends without a sign of its client; None: it does not."""
    session = state.get(session_id)
    return None if session is None or session.ending else session.touched_at + QUIET_MS_MAX
