"""Rows of sessions: how long they are open, what was asked of them, and what they have saved."""

from typing import Any

from schemas.session import (
    CommandAnswered,
    CommandTaken,
    SessionClosed,
    SessionCommand,
    SessionEnding,
    SessionLeased,
    SessionOpened,
    SessionTerms,
    SessionTouched,
)
from schemas.training import BlobFile
from services.gateway.views.projections.sessions import project_session
from services.gateway.views.tables.sessions import SAVED_WEIGHTS, SESSION_COMMANDS, SESSIONS
from tests.unit.services.scheduler.fold import header_of
from tunery.runtime.verbs import Upsert

HEADER = header_of("session", "acme", 9_000)
FILE = BlobFile(name="answer", blob="t/acme/sessions/1", sha256="ab" * 32, bytes=1)
OPENED = SessionOpened(terms=SessionTerms(client="client-1", max_tokens=100, max_ms=60_000))
SAVE_TAKEN = CommandTaken(
    command=SessionCommand(seq=4, kind="save_state", body=FILE, tokens=3, saved="cd" * 32)
)


def rows_after(*events: Any) -> dict[str, dict[str, Any]]:
    """Records by table."""
    records: dict[str, dict[str, Any]] = {}
    for event in events:
        for change in project_session(HEADER, event):
            assert isinstance(change, Upsert)
            records.setdefault(change.table, {}).update({**change.key, **change.values})
    return records


def session_after(*events: Any) -> Any:
    return SESSIONS.read(rows_after(OPENED, *events)[SESSIONS.name])


def test_a_session_opens_is_touched_ends_and_closes() -> None:
    opened = session_after()
    assert (opened.client, opened.opened_at, opened.max_tokens) == ("client-1", 9_000, 100)
    assert (opened.touched_at, opened.why, opened.closed_at) == (None, None, None)
    assert session_after(SessionTouched()).touched_at == 9_000
    assert session_after(SessionEnding(why="quiet")).why == "quiet"
    assert session_after(SessionClosed()).closed_at == 9_000


def test_a_command_is_answered_and_what_it_saved_is_found() -> None:
    answered = CommandAnswered(name="4", answer=FILE, saved=(FILE,), path="cd" * 32)
    records = rows_after(SAVE_TAKEN, answered)
    command = SESSION_COMMANDS.read(records[SESSION_COMMANDS.name])
    assert command is not None
    assert (command.id, command.kind, command.tokens) == ("4", "save_state", 3)
    assert (command.answer, command.failed) == (FILE, False)
    saved = SAVED_WEIGHTS.read(records[SAVED_WEIGHTS.name])
    assert saved is not None
    assert (saved.id, saved.command, saved.files) == ("cd" * 32, "4", (FILE,))
    failed = rows_after(SAVE_TAKEN, CommandAnswered(name="4", answer=FILE, failed=True))
    assert SAVED_WEIGHTS.name not in failed


def test_which_nodes_answer_is_not_shown() -> None:
    assert project_session(HEADER, SessionLeased(attempt=1, node_ids=("a",))) == ()
