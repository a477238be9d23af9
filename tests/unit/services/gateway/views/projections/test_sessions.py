"""Rows of sessions: when they are open, their commands, and what they have saved."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from schemas.session import (
    TOKEN_KINDS,
    CommandAnswered,
    CommandTaken,
    SessionClosed,
    SessionCommand,
    SessionEnding,
    SessionErased,
    SessionLeased,
    SessionOpened,
    SessionTerms,
    SessionTermsSet,
    SessionTouched,
)
from schemas.training import BlobFile
from services.billing.project import project_storage
from services.gateway.views.projections.journals import JOB_ROWS, project
from services.gateway.views.projections.sessions import project_session
from services.gateway.views.tables.billing import SESSION_USES, STORED
from services.gateway.views.tables.sessions import SAVED_WEIGHTS, SESSION_COMMANDS, SESSIONS
from tests.unit.services.scheduler.fold import header_of
from tunery.runtime.verbs import Change, Delete, Upsert

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


def test_tokens_of_a_command_count_when_it_is_answered_by_the_book_of_its_session() -> None:
    answered = CommandAnswered(
        name="4", answer=FILE, trained=3, prefilled=2, sampled=1, price_version="2026-11"
    )
    assert SESSION_USES.name not in rows_after(SAVE_TAKEN)
    use = SESSION_USES.read(rows_after(SAVE_TAKEN, answered)[SESSION_USES.name])
    assert use is not None
    assert {kind: getattr(use, kind) for kind in TOKEN_KINDS} == asdict(answered.tokens)
    assert (use.train_tokens, use.prefill_tokens, use.sample_tokens) == (3, 2, 1)
    assert (use.session_id, use.price_version, use.hour_utc) == ("acme", "2026-11", 0)
    # an invoice keeps its lines, also after its tenant's jobs are erased
    assert SESSION_USES not in JOB_ROWS


def test_a_session_may_use_more() -> None:
    raised = SessionTerms(client="client-1", max_tokens=200, max_ms=90_000)
    session = session_after(SessionTermsSet(terms=raised))
    assert (session.max_tokens, session.max_ms) == (200, 90_000)


def test_what_an_erased_session_saved_is_not_found_any_more() -> None:
    session, deleted = project_session(HEADER, SessionErased())
    assert isinstance(session, Upsert)
    assert session.values == {"erased_at": 9_000}
    assert deleted == Delete(SAVED_WEIGHTS.name, {"tenant": "acme", "session_id": "acme"})


def test_which_nodes_answer_is_not_shown() -> None:
    assert project_session(HEADER, SessionLeased(attempt=1, node_ids=("a",))) == ()


def test_tinker_what_a_session_saved_is_stored_as_long_by_the_draft_as_by_the_bill() -> None:
    saved = [CommandAnswered(name=str(n), answer=FILE, saves=n, saved_bytes=10 * n) for n in (1, 2)]
    for event in (*saved, SessionErased(saves=2)):
        of_bill = _rows("storage", "object_id", project_storage(HEADER, event))
        of_draft = _rows(STORED.name, "id", project(HEADER, event))
        assert list(of_draft) == list(of_bill)
        for name, values in of_bill.items():
            assert values.items() <= of_draft[name].items()
    assert of_bill == {"acme/2": {"until": 9_000}}


def _rows(table: str, name: str, changes: Iterable[Change]) -> dict[str, Mapping[str, Any]]:
    """Return values of the changed rows of a table by name."""
    rows = [each for each in changes if isinstance(each, Upsert) and each.table == table]
    return {row.key[name]: row.values for row in rows}
