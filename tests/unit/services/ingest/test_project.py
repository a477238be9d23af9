"""Rows to do and reactions, event by event."""

from msgspec.structs import replace

from schemas.dataset import (
    DatasetPrepared,
    FileContent,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    PreparationDue,
    PreparationFailed,
    Prepared,
    PrepareSpec,
    Validation,
)
from schemas.model import Base, BaseAdded
from schemas.reasons import Failure, failing
from schemas.sealed import Sealed
from schemas.session import SessionErased
from schemas.storage import FileTerms
from services.ingest.project import BASES, ERASE, PREPARE, VALIDATE, EraseFileBlob, project
from tests.unit.services.headers import header
from tunery.runtime.verbs import Done, Todo, Upsert

SHA = "a" * 64
SPEC = PrepareSpec(
    base_id="small",
    base_sha256=SHA,
    max_length=8,
    length_policy="reject",
    validation_fraction_ppm=0,
    seed=1,
)
PREPARED = Prepared(
    version="v",
    train_blob="a",
    train_sha256=SHA,
    validation_blob="b",
    validation_sha256=SHA,
    prompts_blob="c",
    prompts_sha256=SHA,
    train_rows=1,
    validation_rows=1,
    packed_rows=1,
    tokens=1,
    trainable_tokens=1,
)
AT = header("dataset")
FAILED = Failure(code="platform_error", reason=failing("preparation_failed"))


def registered(purpose: str = "fine-tune") -> FileRegistered:
    return FileRegistered(
        file_id="f",
        terms=FileTerms(
            purpose="fine-tune" if purpose == "fine-tune" else "fine-tune-results",
            name=Sealed(key_id="k", nonce=b"", ciphertext=b""),
        ),
        content=FileContent(bytes=1, sha256=SHA, blob="files/a"),
    )


def validated(*, accepted: bool) -> FileValidated:
    validation = Validation(
        accepted=accepted,
        dialect="chat",
        rows=1,
        errors=0,
        warnings=0,
        tokens=(),
        report_blob="reports/a",
    )
    return FileValidated(file_id="f", validation=validation)


def test_only_training_files_are_validated() -> None:
    (todo,) = project(AT, registered())
    assert isinstance(todo, Todo)
    assert (todo.kind, todo.id) == (VALIDATE, "acme/f")
    assert project(AT, registered("fine-tune-results")) == ()


def test_a_row_ends_with_its_outcome() -> None:
    assert Done(VALIDATE, "acme/f") in project(AT, validated(accepted=True))
    assert project(AT, FileUnreadable(file_id="f", failure=FAILED)) == (Done(VALIDATE, "acme/f"),)
    due = PreparationDue(
        prepare_id="p", training_blob="x", training_sha256=SHA, validation_blob=None, spec=SPEC
    )
    (todo,) = project(AT, due)
    assert isinstance(todo, Todo)
    assert (todo.kind, todo.id, todo.body) == (PREPARE, "p", due)
    done = project(AT, DatasetPrepared(prepare_id="p", prepared=PREPARED))
    assert done == (Done(PREPARE, "p"),)


def test_review2_w1_what_failed_tries_of_a_preparation_stored_is_erased() -> None:
    """Seed 1299 of the simulator's artifacts: a try was cut off between two files."""
    ended, erased = project(AT, PreparationFailed(prepare_id="p", failure=FAILED))
    assert ended == Done(PREPARE, "p")
    assert isinstance(erased, Todo)
    folder = "t/acme/prepared/p/"
    assert (erased.kind, erased.id, erased.body) == (ERASE, folder, EraseFileBlob(blob=folder))


def test_a_deletion_ends_work_and_starts_erasure() -> None:
    event = FileDeleted(
        file_id="f", blob="files/a", report_blob=None, erase=("files/a",), cancelled=("p",)
    )
    changes = project(AT, event)
    assert changes[:2] == (Done(VALIDATE, "acme/f"), Done(PREPARE, "p"))
    (todo,) = changes[2:]
    assert isinstance(todo, Todo)
    assert (todo.kind, todo.id, todo.body) == (ERASE, "files/a", EraseFileBlob(blob="files/a"))


def test_bases_are_kept_for_their_tokenizers() -> None:
    base = Base(
        base_id="small",
        sha256=SHA,
        path="/m",
        parameters=1,
        context_length=1,
        family="llama",
        licence="x",
        hidden_size=1,
    )
    (change,) = project(AT, BaseAdded(base=base))
    assert change == Upsert(BASES, {"base_id": "small"}, {"sha256": SHA, "path": "/m"})


def test_what_an_erased_session_stored_is_erased_as_one_folder() -> None:
    (todo,) = project(replace(header("session"), key="session-1"), SessionErased())
    assert isinstance(todo, Todo)
    folder = "t/acme/sessions/session-1/"
    assert (todo.kind, todo.id, todo.body) == (ERASE, folder, EraseFileBlob(blob=folder))
