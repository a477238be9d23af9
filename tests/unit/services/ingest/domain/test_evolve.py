"""The fold takes every event in every state; what it does not know leaves the state as it was."""

import pytest
from immutables import Map
from msgspec.structs import replace

from schemas.dataset import (
    DatasetKept,
    DatasetPinned,
    DatasetPrepared,
    DatasetReady,
    DatasetReleased,
    DatasetUnpinned,
    Event,
    FileContent,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    PartAdded,
    PinRefused,
    PinTerms,
    PreparationDue,
    PreparationFailed,
    UploadCreated,
    UploadEnded,
    Validation,
)
from schemas.envelope import Reason, Rejected
from schemas.storage import DatasetName, FileTerms, UploadPart, UploadTerms
from services.ingest.domain.evolve import evolve, evolve_tenant
from services.ingest.domain.state import INITIAL, TenantDatasets
from tests.unit.services.ingest.domain.test_decide import FAILED, PREPARED, SEALED, SPEC, context

SHA = "a" * 64
REGISTERED = FileRegistered(
    file_id="f",
    expires_at=5,
    terms=FileTerms(purpose="fine-tune", name=SEALED),
    content=FileContent(bytes=1, sha256=SHA, blob="blobs/f"),
)
UPLOAD = UploadCreated(
    upload_id="u",
    expires_at=7,
    terms=UploadTerms(media_type="x", bytes=9, file=FileTerms(purpose="fine-tune", name=SEALED)),
)
DUE = PreparationDue(
    prepare_id="p", training_blob="b", training_sha256=SHA, validation_blob=None, spec=SPEC
)
PINNED = DatasetPinned(
    job_id="j", prepare_id="p", terms=PinTerms(training_file="f", validation_file=None, spec=SPEC)
)
DELETED = FileDeleted(file_id="f", blob="blobs/f", report_blob=None)
VALIDATION = Validation(
    accepted=True, dialect="chat", rows=1, errors=0, warnings=0, tokens=(), report_blob="reports/f"
)


def folded(*events: Event) -> TenantDatasets:
    datasets = TenantDatasets()
    for event in events:
        datasets = evolve_tenant(datasets, event)
    return datasets


@pytest.mark.parametrize(
    "event",
    [
        DELETED,
        FileValidated(file_id="f", validation=VALIDATION),
        FileUnreadable(file_id="f", failure=FAILED),
        PartAdded(upload_id="u", part=UploadPart(part_id="1", bytes=1, sha256=SHA)),
        UploadEnded(upload_id="u", outcome="cancelled", parts=()),
        PinRefused(job_id="j", failure=FAILED),
        DatasetUnpinned(job_id="j"),
        DatasetReleased(job_id="j"),
        DatasetReady(job_id="j", prepared=PREPARED),
        PreparationFailed(prepare_id="p", failure=FAILED),
        Rejected(code="x", reason=Reason(code="y")),
    ],
)
def test_events_about_deleted_objects_change_nothing(event: Event) -> None:
    state = evolve(INITIAL, REGISTERED, context("beta"))
    assert evolve(state, event, context("acme")).get("acme", TenantDatasets()) == TenantDatasets()
    before = TenantDatasets()
    assert evolve_tenant(before, event) is before


def test_tenants_do_not_share_state() -> None:
    state = evolve(INITIAL, REGISTERED, context("acme"))
    assert list(state) == ["acme"]
    assert list(evolve(state, DELETED, context("beta"))["acme"].files) == ["f"]


@pytest.mark.parametrize(
    ("event", "status", "report_blob"),
    [
        (FileValidated(file_id="f", validation=VALIDATION), "accepted", "reports/f"),
        (
            FileValidated(file_id="f", validation=replace(VALIDATION, accepted=False)),
            "rejected",
            "reports/f",
        ),
        (FileUnreadable(file_id="f", failure=FAILED), "rejected", None),
    ],
)
def test_a_file_has_the_status_of_its_validation(
    event: Event, status: str, report_blob: str | None
) -> None:
    assert folded(REGISTERED).files["f"].status == "pending"
    changed = folded(REGISTERED, event).files["f"]
    assert (changed.status, changed.report_blob) == (status, report_blob)


def test_a_deleted_file_leaves_no_expiry_and_no_preparation() -> None:
    assert folded(REGISTERED, DUE, DELETED) == TenantDatasets()


def test_a_version_number_survives_its_file() -> None:
    name = DatasetName(key="faq", name=SEALED)
    named = replace(REGISTERED, terms=replace(REGISTERED.terms, dataset=name), version=3)
    assert dict(folded(named, DELETED).versions) == {"faq": 3}


def test_parts_are_counted_by_id_until_the_upload_ends() -> None:
    part = PartAdded(upload_id="u", part=UploadPart(part_id="1", bytes=4, sha256=SHA))
    grown = folded(UPLOAD, part, replace(part, part=replace(part.part, bytes=5)))
    assert dict(grown.uploads["u"].parts) == {"1": 5}
    assert dict(grown.expires) == {"u": 7}
    ended = UploadEnded(upload_id="u", outcome="completed", parts=("1",))
    assert evolve_tenant(grown, ended) == TenantDatasets()


def test_a_preparation_runs_until_it_has_a_result() -> None:
    assert folded(DUE).preparations["p"].prepared is None
    done = folded(DUE, DatasetPrepared(prepare_id="p", prepared=PREPARED)).preparations["p"]
    assert (done.sources, done.prepared) == ((SHA,), PREPARED)
    both = folded(replace(DUE, validation_sha256="b" * 64)).preparations["p"]
    assert both.sources == (SHA, "b" * 64)
    assert folded(DUE, PreparationFailed(prepare_id="p", failure=FAILED)) == TenantDatasets()


def test_pins_and_lineage_hold_files_until_they_are_released() -> None:
    kept = DatasetKept(job_id="j", model_id="m", training_file="f", validation_file=None)
    held = folded(PINNED, kept)
    assert (held.pins["j"].terms.files, held.kept["j"].files) == (("f",), ("f",))
    released = folded(PINNED, kept, DatasetUnpinned(job_id="j"), DatasetReleased(job_id="j"))
    assert released == TenantDatasets()


@pytest.mark.parametrize("gone", [DELETED, PreparationFailed(prepare_id="p", failure=FAILED)])
def test_review2_w1_work_without_a_preparation_is_forgotten(gone: Event) -> None:
    assert folded(REGISTERED, DUE).prepared_by == Map({"p": "p"})
    after = folded(REGISTERED, DUE, gone)
    assert (after.preparations, after.prepared_by) == (Map(), Map())


def test_review2_w1_the_end_of_an_earlier_preparation_leaves_the_one_of_equal_work() -> None:
    first, again = replace(DUE, work="w"), replace(DUE, prepare_id="q", work="w")
    failed = PreparationFailed(prepare_id="p", failure=FAILED)
    assert folded(first, again, failed).prepared_by == Map({"w": "q"})
