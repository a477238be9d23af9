"""Uploads in parts, and expiring files: given commands, then events."""

from uuid import UUID

from schemas import errors
from schemas.dataset import (
    AddPart,
    CancelUpload,
    Command,
    CompleteUpload,
    CreateUpload,
    DeleteFile,
    Event,
    FileContent,
    FileDeleted,
    FileRegistered,
    PartAdded,
    PinDataset,
    PinTerms,
    RegisterFile,
    UnpinDataset,
    UploadEnded,
)
from schemas.envelope import Context, Rejected, Tick
from schemas.sealed import Sealed
from schemas.storage import FileTerms, UploadPart, UploadTerms
from schemas.units import HOUR_MS
from services.ingest.app import DATASETS
from services.ingest.domain.decide import decide
from services.ingest.domain.evolve import evolve
from services.ingest.domain.quotas import UPLOADS_MAX
from services.ingest.domain.state import INITIAL, DatasetsByTenant
from services.ingest.domain.uploads import PARTS_MAX
from tests.ticks import next_tick
from tests.unit.services.ingest.domain.test_decide import SPEC

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
SHA = "a" * 64
DAY_MS = 24 * HOUR_MS


def step(
    state: DatasetsByTenant, command: Command, at: int = 1, tenant: str = "acme"
) -> tuple[DatasetsByTenant, tuple[Event, ...]]:
    context = Context(at=at, key=tenant, tenant=tenant, command_id=str(UUID(int=1)), seq=1)
    events = decide(state, command, context)
    for event in events:
        state = evolve(state, event, context)
    return state, events


def after(*commands: Command) -> DatasetsByTenant:
    state = INITIAL
    for command in commands:
        state, _ = step(state, command)
    return state


def create(upload_id: str = "u", size: int = 5, keep_ms: int | None = None) -> CreateUpload:
    return CreateUpload(
        upload_id=upload_id,
        terms=UploadTerms(
            media_type="application/jsonl",
            bytes=size,
            file=FileTerms(purpose="fine-tune", name=SEALED, expires_after_ms=keep_ms),
        ),
    )


def part(part_id: str, size: int, upload_id: str = "u") -> AddPart:
    return AddPart(upload_id=upload_id, part=UploadPart(part_id=part_id, bytes=size, sha256=SHA))


def complete(*parts: str, size: int = 5) -> CompleteUpload:
    return CompleteUpload(
        upload_id="u",
        parts=parts,
        file_id="file-1",
        content=FileContent(bytes=size, sha256=SHA, blob="blobs/1"),
    )


def file(file_id: str, keep_ms: int | None) -> RegisterFile:
    return RegisterFile(
        file_id=file_id,
        terms=FileTerms(purpose="fine-tune", name=SEALED, expires_after_ms=keep_ms),
        content=FileContent(bytes=1, sha256=SHA, blob=f"blobs/{file_id}"),
    )


def refusal(events: tuple[Event, ...]) -> str:
    (event,) = events
    assert isinstance(event, Rejected)
    return event.code


def test_parts_become_a_file_in_the_order_that_completion_names() -> None:
    state = after(create(keep_ms=DAY_MS), part("a", 2), part("b", 3), part("unused", 4))
    state, events = step(state, complete("b", "a"), at=7)
    registered, done = events
    assert isinstance(registered, FileRegistered)
    assert registered.expires_at == 7 + DAY_MS
    assert done == UploadEnded(
        upload_id="u", outcome="completed", parts=("b", "a", "unused"), file_id="file-1"
    )
    assert refusal(step(state, complete("b", "a"))[1]) == errors.ILLEGAL_STATE


def test_completion_needs_existing_parts_once_and_all_declared_bytes() -> None:
    state = after(create(), part("a", 2), part("b", 3))
    for wrong in (complete("a", "c"), complete("a", "a"), complete("a", size=2), complete("a")):
        assert refusal(step(state, wrong)[1]) == errors.MALFORMED


def test_a_part_comes_once_and_only_while_the_upload_is_pending() -> None:
    state = after(create(), part("a", 2))
    assert refusal(step(state, part("a", 2))[1]) == errors.ALREADY_EXISTS
    state, (gone,) = step(state, CancelUpload(upload_id="u"))
    assert gone == UploadEnded(upload_id="u", outcome="cancelled", parts=("a",))
    assert refusal(step(state, part("b", 2))[1]) == errors.ILLEGAL_STATE
    assert refusal(step(state, CancelUpload(upload_id="u"))[1]) == errors.ILLEGAL_STATE


def test_uploads_and_parts_are_limited() -> None:
    state = after(*(create(f"u{number}") for number in range(UPLOADS_MAX)))
    assert refusal(step(state, create("more"))[1]) == errors.QUOTA_EXCEEDED
    size = PARTS_MAX + 1
    state = after(create(size=size), *(part(f"p{number}", 1) for number in range(PARTS_MAX)))
    assert refusal(step(state, part("more", 1))[1]) == errors.ILLEGAL_STATE


def test_security_m1_parts_have_what_was_declared_and_each_may_be_sent_twice() -> None:
    """An upload of 10 bytes took 6 parts of 32 MB."""
    state = after(create(size=10), part("a", 6), part("a-again", 6), part("b", 4))
    assert refusal(step(state, part("c", 5))[1]) == errors.MALFORMED
    assert isinstance(step(state, part("b-again", 4))[1][0], PartAdded)
    assert refusal(step(after(create(size=10)), part("a", 11))[1]) == errors.MALFORMED


def test_expired_files_are_deleted_by_a_tick() -> None:
    state = after(create(), part("a", 2), file("file-1", 3 * HOUR_MS), file("file-2", None))
    assert next_tick(DATASETS, state) == (1 + HOUR_MS, "acme")
    state, events = step(state, Tick(), at=1 + HOUR_MS)
    assert events == (UploadEnded(upload_id="u", outcome="expired", parts=("a",)),)
    assert next_tick(DATASETS, state) == (1 + 3 * HOUR_MS, "acme")
    state, (gone,) = step(state, Tick(), at=1 + 4 * HOUR_MS)
    assert isinstance(gone, FileDeleted)
    assert gone.file_id == "file-1"
    assert next_tick(DATASETS, state) is None


def test_a_file_that_a_job_needs_outlives_its_time_until_the_job_ends() -> None:
    pin = PinDataset(
        job_id="j", terms=PinTerms(training_file="file-1", validation_file=None, spec=SPEC)
    )
    state = after(file("file-1", HOUR_MS), pin)
    assert next_tick(DATASETS, state) is None
    assert step(state, Tick(), at=DAY_MS)[1] == ()
    state, _ = step(state, UnpinDataset(job_id="j"))
    (gone,) = step(state, Tick(), at=DAY_MS)[1]
    assert isinstance(gone, FileDeleted)


def test_files_that_expire_together_are_deleted_by_one_tick() -> None:
    state = after(file("file-1", HOUR_MS), file("file-2", HOUR_MS))
    _, events = step(state, Tick(), at=DAY_MS)
    gone = [event for event in events if isinstance(event, FileDeleted)]
    assert [event.file_id for event in gone] == ["file-1", "file-2"]
    assert [event.erase[0] for event in gone] == ["blobs/file-1", "blobs/file-2"]


def test_deleting_a_file_forgets_when_it_would_have_expired() -> None:
    state = after(file("file-1", HOUR_MS), DeleteFile(file_id="file-1"))
    assert next_tick(DATASETS, state) is None
