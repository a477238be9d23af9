"""Decider of `session`: commands are taken once, in order, within the tokens of their session."""

from typing import Final, assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Rejected, Tick, reject
from schemas.reasons import refusing
from schemas.session import (
    AHEAD_MAX,
    QUIET_MS_MAX,
    AnswerCommand,
    CloseSession,
    Command,
    CommandAnswered,
    CommandTaken,
    EndSession,
    Event,
    LeaseSession,
    OpenSession,
    SessionClosed,
    SessionEnding,
    SessionErased,
    SessionLeased,
    SessionOpened,
    SessionTermsSet,
    SessionTouched,
    SetSessionTerms,
    TakeCommand,
    TouchSession,
)
from schemas.streams import agent_of, node_of
from services.scheduler.domain.session.state import Session, Sessions

WAITING_MAX: Final = 10_000  # commands of a session that are not answered


def decide(state: Sessions, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Decide one command of one session."""
    session = state.get(ctx.key)
    if session is None or session.tenant != ctx.tenant or session.closed_at is not None:
        return _without_session(session, command, ctx)
    match command:
        case TakeCommand():
            return _take(session, command, ctx)
        case AnswerCommand():
            return _answer(session, command, ctx)
        case OpenSession():
            return ()
        case LeaseSession():
            return (SessionLeased(attempt=command.attempt, node_ids=command.node_ids),)
        case SetSessionTerms():
            return (SessionTermsSet(terms=command.terms),)
        case CloseSession():
            return (SessionClosed(),)
        case TouchSession():
            return () if session.ending else (SessionTouched(),)
        case EndSession():
            return () if session.ending else (SessionEnding(why="client"),)
        case Tick():
            is_quiet = session.touched_at + QUIET_MS_MAX <= ctx.at
            return (SessionEnding(why=session.ending or "quiet"),) if is_quiet else ()
        case _:
            assert_never(command)


def _without_session(other: Session | None, command: Command, ctx: Context) -> tuple[Event, ...]:
    """The decision where there is no open session of this tenant."""
    if isinstance(command, OpenSession) and other is None:
        return (SessionOpened(terms=command.terms, price_version=command.price_version),)
    if isinstance(command, Tick) and other is not None and other.closed_at is not None:
        is_over = other.closed_at + other.terms.kept_ms <= ctx.at
        return (SessionErased(saves=other.saves),) if is_over else ()
    if isinstance(command, LeaseSession | SetSessionTerms | CloseSession | Tick):
        return ()  # facts that came late
    return reject(errors.NOT_FOUND, refusing("session_missing", session_id=ctx.key))


def _take(session: Session, command: TakeCommand, ctx: Context) -> tuple[Event, ...]:
    """A command comes once: a second one with the same body is the first, any other is refused."""
    asked = command.command
    known = session.commands.get(asked.name)
    if known is not None:
        if known.sha256 == asked.body.sha256:
            return ()
        return reject(errors.ALREADY_EXISTS, refusing("session_seq_used", seq=asked.seq), "seq_id")
    if session.ending:
        return reject(errors.ILLEGAL_STATE, refusing("session_over", session_id=ctx.key))
    if asked.seq < (0 if asked.sampler else 1):
        return reject(errors.MALFORMED, refusing("session_seq_below_one"), "seq_id")
    if not asked.sampler and asked.seq >= session.next_seq + AHEAD_MAX:
        hole = refusing("session_hole", seq=asked.seq, missing=session.next_seq, limit=AHEAD_MAX)
        return reject(errors.ILLEGAL_STATE, hole, "seq_id")
    if session.waiting >= WAITING_MAX:
        full = refusing("session_commands_at_most", limit=WAITING_MAX)
        return reject(errors.QUOTA_EXCEEDED, full)
    left = session.terms.max_tokens - session.tokens
    if asked.tokens > left:
        cap = refusing(
            "session_tokens",
            tokens=asked.tokens,
            left=left,
            limit=session.terms.max_tokens,
        )
        return reject(errors.BUDGET_EXCEEDED, cap)
    return (CommandTaken(command=asked),)


def _answer(session: Session, command: AnswerCommand, ctx: Context) -> tuple[Event, ...]:
    """The first answer counts: a process that was restored computes the same again."""
    if (refusal := _refuse_stranger(session, ctx.sender)) is not None:
        return (refusal,)
    known = session.commands.get(command.name)
    if known is None:
        return reject(errors.NOT_FOUND, refusing("command_missing", name=command.name))
    if known.answered or command.attempt != session.attempt:
        return ()
    answered = CommandAnswered(
        name=command.name,
        answer=command.answer,
        failed=command.failed,
        saved=command.saved,
        path=known.saved if command.saved else "",
        trained=known.trained,
        prefilled=known.prefilled,
        sampled=command.sampled,
        price_version=session.price_version,
    )
    if command.saved:
        saved_bytes = session.saved_bytes + sum(file.bytes for file in command.saved)
        answered = replace(answered, saves=session.saves + 1, saved_bytes=saved_bytes)
    return (answered,)


def _refuse_stranger(session: Session, sender: str | None) -> Rejected | None:
    """Refuse the answer of a node that does not run the session; None: it does."""
    agent = None if sender is None else node_of(sender)
    if sender is None or agent is None or agent in map(agent_of, session.node_ids):
        return None
    node_id = next(iter(session.node_ids), "")
    other = refusing("sender_not_node", sender=sender, node_id=node_id)
    return Rejected(code=errors.SENDER_REFUSED, reason=other)
