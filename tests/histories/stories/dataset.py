"""`dataset`: files, uploads, validations, pins and preparations, good and bad."""

from msgspec.structs import replace

from schemas.dataset import (
    AddPart,
    BaseTokens,
    CancelUpload,
    CompleteUpload,
    CreateUpload,
    DeleteFile,
    EraseUnnamed,
    FileContent,
    KeepDataset,
    PinDataset,
    PinTerms,
    PreparationDue,
    Prepared,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
    RegisterFile,
    ReleaseDataset,
    UnpinDataset,
    Validation,
)
from schemas.envelope import Source, Tick
from schemas.erasure import EraseFiles
from schemas.reasons import Failure, failing
from schemas.storage import DatasetName, FileTerms, UploadPart, UploadTerms
from schemas.units import DAY_MS, HOUR_MS
from tests.histories.recorder import Recorder

TOKENS = BaseTokens(
    base_id="smol",
    base_sha256="b" * 64,
    tokens=20_000,
    trainable_tokens=9_000,
    longest_row_tokens=200,
)
PREPARED = Prepared(
    version="v1",
    train_blob="t/acme/train",
    train_sha256="1" * 64,
    validation_blob="t/acme/validation",
    validation_sha256="2" * 64,
    prompts_blob="t/acme/prompts",
    prompts_sha256="3" * 64,
    train_rows=90,
    validation_rows=10,
    packed_rows=40,
    tokens=18_000,
    trainable_tokens=8_000,
)


def of_dataset(file: RegisterFile, dataset: DatasetName) -> RegisterFile:
    return replace(file, terms=replace(file.terms, dataset=dataset, rows_max=100_000))


def file(story: Recorder, number: int, expires_after_ms: int | None = None) -> RegisterFile:
    return RegisterFile(
        file_id=f"file-{number}",
        terms=FileTerms(
            purpose="fine-tune",
            name=story.seal(f"customers of the night shift, part {number}.jsonl"),
            expires_after_ms=expires_after_ms,
        ),
        content=FileContent(
            bytes=1_000 + number, sha256=f"{number:064x}", blob=f"t/acme/files/{number}"
        ),
    )


def validated(number: int, *, accepted: bool = True) -> RecordValidation:
    validation = Validation(
        accepted=accepted,
        dialect="chat",
        rows=100,
        errors=0 if accepted else 3,
        warnings=1,
        tokens=(TOKENS,) if accepted else (),
        report_blob=f"t/acme/reports/file-{number}",
    )
    return RecordValidation(file_id=f"file-{number}", validation=validation)


def pin(job_id: str, training: int, validation: int | None = None, seed: int = 1) -> PinDataset:
    spec = PrepareSpec(
        base_id="smol",
        base_sha256="b" * 64,
        max_length=512,
        length_policy="reject",
        validation_fraction_ppm=100_000,
        seed=seed,
    )
    other = None if validation is None else f"file-{validation}"
    return PinDataset(
        job_id=job_id,
        terms=PinTerms(training_file=f"file-{training}", validation_file=other, spec=spec),
    )


def due(events: tuple[object, ...]) -> str:
    (preparation,) = (event for event in events if isinstance(event, PreparationDue))
    return preparation.prepare_id


def files_and_preparations(story: Recorder) -> None:
    story.when(file(story, 1))
    story.when(validated(1))
    story.when(file(story, 2))
    reaction = Source("job", 3, 0, 9, 0)
    prepare_id = due(story.when(pin("ftjob-1", 1), source=reaction))
    story.when(pin("ftjob-1", 1), source=reaction)
    story.when(RecordPrepared(prepare_id=prepare_id, prepared=PREPARED))
    story.when(pin("ftjob-2", 1))  # prepared already
    story.when(pin("ftjob-3", 1, 2))  # waits for the second file, which turns out bad
    story.when(validated(2, accepted=False))
    story.when(DeleteFile(file_id="file-1"))  # in use
    again = due(story.when(pin("ftjob-4", 1, seed=2)))
    detail = story.seal("no room on the disk")
    unprepared = Failure(code="platform_error", reason=failing("preparation_failed"), detail=detail)
    unchecked = Failure(
        code="invalid_training_file", reason=failing("file_unchecked"), detail=detail
    )
    story.when(RecordPrepared(prepare_id=again, prepared=None, failure=unprepared))
    story.when(file(story, 3))
    story.when(RecordValidation(file_id="file-3", validation=None, failure=unchecked))
    for number in range(1, 5):
        story.when(UnpinDataset(job_id=f"ftjob-{number}"))
    story.when(DeleteFile(file_id="file-1"))


def work_that_is_discarded(story: Recorder) -> None:
    story.when(file(story, 1))
    story.when(DeleteFile(file_id="file-1"))
    story.when(validated(1))  # its check was under way


def versions_and_what_models_keep(story: Recorder) -> None:
    faq = DatasetName(key="5b" * 32, name=story.seal("questions of visitors"))
    for number in (1, 2):
        story.when(of_dataset(file(story, number), faq))
        story.when(validated(number))
    named = upload(story, "upload_1")
    declared = replace(named.terms.file, dataset=faq, rows_max=100_000)
    story.when(replace(named, terms=replace(named.terms, file=declared)))
    story.when(pin("ftjob-1", 1, 2))
    story.when(KeepDataset(job_id="ftjob-1", model_id="ft:smol:acme::1"))
    story.when(UnpinDataset(job_id="ftjob-1"))
    story.when(DeleteFile(file_id="file-2"))  # in a lineage
    story.when(ReleaseDataset(job_id="ftjob-1"))
    story.when(DeleteFile(file_id="file-2"))
    story.when(of_dataset(file(story, 3), faq))  # the third: numbers are never given twice


def upload(story: Recorder, upload_id: str) -> CreateUpload:
    return CreateUpload(
        upload_id=upload_id,
        terms=UploadTerms(
            media_type="text/jsonl",
            bytes=30,
            file=FileTerms(
                purpose="fine-tune",
                name=story.seal("large file of the night shift.jsonl"),
                expires_after_ms=2 * DAY_MS,
            ),
        ),
    )


def uploads_that_end(story: Recorder) -> None:
    story.when(upload(story, "upload_1"))
    for number, size in ((1, 10), (2, 20)):
        story.when(
            AddPart(
                upload_id="upload_1",
                part=UploadPart(part_id=f"part_{number}", bytes=size, sha256=f"{number:064x}"),
            )
        )
    story.when(
        CompleteUpload(
            upload_id="upload_1",
            parts=("part_2", "part_1"),
            file_id="file-1",
            content=FileContent(bytes=30, sha256="c" * 64, blob="t/acme/files/c"),
        )
    )
    story.when(upload(story, "upload_2"))
    story.when(CancelUpload(upload_id="upload_2"))
    story.when(upload(story, "upload_3"))
    story.when(Tick(), after_ms=2 * HOUR_MS)  # an upload expires
    story.when(file(story, 2, expires_after_ms=DAY_MS))
    story.when(Tick(), after_ms=3 * DAY_MS)  # and both files


def objects_that_no_record_names(story: Recorder) -> None:
    """Objects stay that a record names after the inventory."""
    story.when(file(story, 1))
    named, unnamed = "t/acme/files/1", "t/acme/checkpoints/ftjob-1/1/aa"
    story.when(EraseUnnamed(blobs=(named, unnamed, "t/other/files/2"), before=1))
    story.when(EraseUnnamed(blobs=(named,), before=1))


def files_of_an_erased_tenant(story: Recorder) -> None:
    """Late commands are refused or ended, and late bytes erased."""
    story.when(file(story, 1))
    story.when(file(story, 2))
    story.when(upload(story, "upload_1"))
    story.when(validated(1))
    story.when(EraseFiles())
    story.when(validated(2))
    story.when(file(story, 3))
    story.when(RecordPrepared(prepare_id="late", prepared=PREPARED))
    story.when(UnpinDataset(job_id="ftjob-1"))
