"""Decider of `session`: commands once, in order, within their tokens, answered by their node."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from schemas import errors
from schemas.envelope import Context, Rejected, Tick
from schemas.session import (
    AHEAD_MAX,
    KEPT_MS,
    QUIET_MS_MAX,
    AnswerCommand,
    CloseSession,
    Command,
    CommandAnswered,
    CommandTaken,
    EndSession,
    LeaseSession,
    OpenSession,
    SessionClosed,
    SessionCommand,
    SessionEnding,
    SessionErased,
    SessionTerms,
    TakeCommand,
    TouchSession,
)
from schemas.training import BlobFile
from services.scheduler.domain.session import decide as decider
from services.scheduler.domain.session.decide import decide
from services.scheduler.domain.session.evolve import due_at, evolve, tenant_of
from services.scheduler.domain.session.state import INITIAL, Sessions

KEY = "session-1"
TERMS = SessionTerms(client="client-1", max_tokens=100, max_ms=60_000)


def context(at: int = 0, tenant: str = "acme", sender: str | None = None) -> Context:
    return Context(at=at, key=KEY, tenant=tenant, command_id="c", seq=1, sender=sender)


def blob(number: int = 1) -> BlobFile:
    return BlobFile(name="body", blob=f"t/acme/sessions/{number}", sha256=f"{number:064x}", bytes=1)


def asked(seq: int, body: int | None = None, **changes: Any) -> TakeCommand:
    command = SessionCommand(
        seq=seq, kind="forward_backward", body=blob(seq if body is None else body), tokens=10
    )
    return TakeCommand(command=replace(command, **changes))


def after(commands: Iterable[Command], ctx: Context | None = None) -> Sessions:
    state = INITIAL
    for command in (OpenSession(terms=TERMS), *commands):
        for event in decide(state, command, ctx or context()):
            state = evolve(state, event, ctx or context())
    return state


def refused(state: Sessions, command: Command, ctx: Context | None = None) -> str:
    (event,) = decide(state, command, ctx or context())
    assert isinstance(event, Rejected), event
    return event.code


def test_a_command_comes_once() -> None:
    state = after([asked(1)])
    assert decide(state, asked(1), context()) == ()
    assert refused(state, asked(1, body=2)) == errors.ALREADY_EXISTS
    assert state[KEY].tokens == 10


def test_commands_may_come_a_little_early_and_never_far() -> None:
    state = after([asked(2), asked(3)])
    assert state[KEY].next_seq == 1
    assert refused(state, asked(1 + AHEAD_MAX)) == errors.ILLEGAL_STATE
    (event,) = decide(state, asked(1 + AHEAD_MAX), context())
    assert isinstance(event, Rejected)
    assert event.reason.params["missing"] == 1
    assert after([asked(2), asked(3), asked(1)])[KEY].next_seq == 4


def test_tinker_unfetched_commands_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decider.WAITING_MAX == 10_000
    monkeypatch.setattr(decider, "WAITING_MAX", 2)
    state = after([asked(1), asked(2)])
    assert refused(state, asked(3)) == errors.QUOTA_EXCEEDED


def test_samples_have_numbers_of_their_own() -> None:
    state = after([asked(1), asked(5, sampler="s"), asked(0, sampler="s")])
    assert state[KEY].next_seq == 2
    assert refused(state, asked(0)) == errors.MALFORMED


def test_the_cap_holds() -> None:
    state = after(asked(seq) for seq in range(1, 11))
    assert refused(state, asked(11)) == errors.BUDGET_EXCEEDED
    assert decide(state, asked(11, tokens=0), context()) != ()


def test_the_first_answer_of_the_leases_node_counts() -> None:
    leased = LeaseSession(attempt=2, node_ids=("a",))
    state = after([asked(1), leased])
    answer = AnswerCommand(attempt=2, name="1", answer=blob(7))
    assert refused(state, answer, context(sender="node.b")) == errors.SENDER_REFUSED
    (event,) = decide(state, answer, context(sender="node.a"))
    assert isinstance(event, CommandAnswered)
    assert decide(state, replace(answer, attempt=1), context(sender="node.a")) == ()
    state = after([asked(1), leased, answer])
    assert decide(state, replace(answer, answer=blob(8)), context(sender="node.a")) == ()
    assert state[KEY].waiting == 0
    assert refused(state, replace(answer, name="9")) == errors.NOT_FOUND


@pytest.mark.parametrize(
    ("kind", "counts", "tokens"),
    [
        ("forward_backward", (10, 0), (10, 0, 0)),
        ("forward", (10, 0), (0, 10, 0)),
        ("sample", (50, 5), (0, 5, 7)),
        ("optim_step", (0, 0), (0, 0, 0)),
    ],
)
def test_an_answer_has_the_tokens_of_its_command_by_kind_and_the_sessions_book(
    kind: str, counts: tuple[int, int], tokens: tuple[int, int, int]
) -> None:
    total, prompt = counts
    opening = OpenSession(terms=TERMS, price_version="2026-11")
    request = asked(1, kind=kind, tokens=total, prompt_tokens=prompt)
    state = INITIAL
    for command in (opening, request, LeaseSession(attempt=1, node_ids=("a",))):
        for event in decide(state, command, context()):
            state = evolve(state, event, context())
    answer = AnswerCommand(attempt=1, name="1", answer=blob(7), sampled=tokens[2])
    (answered,) = decide(state, answer, context(sender="node.a"))
    assert isinstance(answered, CommandAnswered)
    assert astuple(answered.tokens) == tokens
    assert answered.price_version == "2026-11"


@pytest.mark.parametrize("command", [asked(1), TouchSession(), EndSession()])
def test_sessions_of_other_tenants_are_not_there(command: Command) -> None:
    assert refused(after([]), command, context(tenant="other")) == errors.NOT_FOUND
    assert refused(INITIAL, command) == errors.NOT_FOUND


def test_a_session_ends_when_its_client_is_silent() -> None:
    state = after([])
    assert due_at(state, KEY) == QUIET_MS_MAX
    assert decide(state, Tick(), context(at=QUIET_MS_MAX - 1)) == ()
    (event,) = decide(state, Tick(), context(at=QUIET_MS_MAX))
    assert event == SessionEnding(why="quiet")
    touched = evolve(state, decide(state, TouchSession(), context())[0], context(at=5))
    assert due_at(touched, KEY) == QUIET_MS_MAX + 5


def test_an_ending_session_takes_nothing_more_and_is_then_forgotten() -> None:
    state = after([asked(1), EndSession()])
    assert decide(state, EndSession(), context()) == ()
    assert decide(state, asked(1), context()) == ()  # the first answer is still its
    assert refused(state, asked(2)) == errors.ILLEGAL_STATE
    assert (tenant_of(state, KEY), tenant_of(INITIAL, KEY)) == ("acme", "")
    (again,) = decide(state, Tick(), context(at=QUIET_MS_MAX))
    assert again == SessionEnding(why="client")  # where the job waits at its cap it ends now
    assert decide(state, TouchSession(), context()) == ()
    assert decide(INITIAL, CloseSession(), context()) == ()
    assert decide(INITIAL, LeaseSession(attempt=1, node_ids=()), context()) == ()


def test_what_a_session_stored_is_erased_some_days_after_its_end() -> None:
    ended = after([asked(1), EndSession(), CloseSession()], context(at=7))
    erased_at = 7 + TERMS.kept_ms
    assert due_at(ended, KEY) == erased_at == 7 + KEPT_MS
    assert not ended[KEY].commands
    for late in (LeaseSession(attempt=1, node_ids=()), CloseSession(), Tick()):
        assert decide(ended, late, context(at=erased_at - 1)) == ()
    for command in (asked(1), asked(2), TouchSession(), OpenSession(terms=TERMS)):
        assert refused(ended, command) == errors.NOT_FOUND
    (event,) = decide(ended, Tick(), context(at=erased_at))
    assert event == SessionErased()
    assert KEY not in evolve(ended, event, context())


def test_what_is_saved_is_found_under_its_hash() -> None:
    take = asked(1, saved="hash")
    leased = LeaseSession(attempt=1, node_ids=("a",))
    (event,) = decide(after([]), take, context())
    assert event == CommandTaken(command=take.command)
    answer = AnswerCommand(attempt=1, name="1", answer=blob(7), saved=(blob(8),))
    (event,) = decide(after([take, leased]), answer, context())
    assert isinstance(event, CommandAnswered)
    assert (event.path, event.saved) == ("hash", (blob(8),))


def test_tinker_bytes_of_what_was_saved_are_counted_until_it_is_erased() -> None:
    """An answer counts all that was saved by then, and a second one to a command nothing."""
    leased = LeaseSession(attempt=1, node_ids=("a",))
    state = after([*map(asked, (1, 2, 3)), leased])
    counted = []
    for number, saved in ((1, (blob(8), blob(9))), (2, ()), (3, (blob(8),))):
        answer = AnswerCommand(attempt=1, name=str(number), answer=blob(7), saved=saved)
        (event,) = decide(state, answer, context())
        assert isinstance(event, CommandAnswered)
        counted.append((event.saves, event.saved_bytes))
        state = evolve(state, event, context())
        assert decide(state, answer, context()) == ()
    size = blob(8).bytes
    assert counted == [(1, 2 * size), (0, 0), (2, 3 * size)]
    state = evolve(state, SessionClosed(), context(at=7))
    assert decide(state, Tick(), context(at=7 + KEPT_MS)) == (SessionErased(saves=2),)
