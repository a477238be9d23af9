"""`dataset`: given events, when a command, then events; and pins under random histories."""

from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    ChatFormat,
    Command,
    DatasetPinned,
    DatasetReady,
    DeleteFile,
    Event,
    FileContent,
    FileDeleted,
    FileUnreadable,
    FileValidated,
    KeepDataset,
    MixedBlob,
    MixedFile,
    PinDataset,
    PinRefused,
    PinTerms,
    PreparationDue,
    PreparationFailed,
    Prepared,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
    RegisterFile,
    UnpinDataset,
    Validation,
    WorkDiscarded,
)
from schemas.envelope import Context, Rejected
from schemas.reasons import Failure, failing, refusing
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from services.ingest.domain.decide import decide
from services.ingest.domain.evolve import evolve
from services.ingest.domain.state import INITIAL, DatasetsByTenant, Preparation, TenantDatasets

FAILED = Failure(code=errors.PLATFORM, reason=failing("preparation_failed"))
SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
SPEC = PrepareSpec(
    base_id="small",
    base_sha256="b" * 64,
    max_length=512,
    length_policy="reject",
    validation_fraction_ppm=100_000,
    seed=1,
)
PREPARED = Prepared(
    version="v",
    train_blob="shards/train",
    train_sha256="1" * 64,
    validation_blob="shards/validation",
    validation_sha256="2" * 64,
    prompts_blob="shards/prompts",
    prompts_sha256="3" * 64,
    train_rows=1,
    validation_rows=1,
    packed_rows=1,
    tokens=1,
    trainable_tokens=1,
)


def context(tenant: str = "acme", number: int = 1) -> Context:
    return Context(at=1, key=tenant, tenant=tenant, command_id=str(UUID(int=number)), seq=number)


def step(
    state: DatasetsByTenant, command: Command, number: int = 1
) -> tuple[DatasetsByTenant, tuple[Event, ...]]:
    ctx = context(number=number)
    events = decide(state, command, ctx)
    for event in events:
        state = evolve(state, event, ctx)
    return state, events


def after(*commands: Command, state: DatasetsByTenant = INITIAL) -> DatasetsByTenant:
    for command in commands:
        state, _ = step(state, command)
    return state


def file(file_id: str, content: str = "a") -> RegisterFile:
    return RegisterFile(
        file_id=file_id,
        terms=FileTerms(purpose="fine-tune", name=SEALED),
        content=FileContent(bytes=1, sha256=content * 64, blob=f"files/{file_id}"),
    )


def validated(file_id: str, *, accepted: bool = True) -> RecordValidation:
    validation = Validation(
        accepted=accepted,
        dialect="chat",
        rows=10,
        errors=0 if accepted else 1,
        warnings=0,
        tokens=(),
        report_blob=f"reports/{file_id}",
    )
    return RecordValidation(file_id=file_id, validation=validation)


def pin(
    job_id: str, training: str = "f1", validation: str | None = None, spec: PrepareSpec = SPEC
) -> PinDataset:
    terms = PinTerms(training_file=training, validation_file=validation, spec=spec)
    return PinDataset(job_id=job_id, terms=terms)


def due(events: tuple[Event, ...]) -> list[PreparationDue]:
    return [event for event in events if isinstance(event, PreparationDue)]


def ready(events: tuple[Event, ...]) -> list[str]:
    return [event.job_id for event in events if isinstance(event, DatasetReady)]


def test_a_pin_of_a_valid_file_starts_its_preparation() -> None:
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    assert isinstance(events[0], DatasetPinned)
    (preparation,) = due(events)
    assert preparation.training_blob == "files/f1"
    _, events = step(state, RecordPrepared(prepare_id=preparation.prepare_id, prepared=PREPARED))
    assert ready(events) == ["j1"]


def test_mixture_all_files_are_checked_pinned_kept_and_prepared_by_weight() -> None:
    mixture = (MixedFile(file_id="f2", weight_ppm=300_000),)
    terms = PinTerms(training_file="f1", validation_file=None, spec=SPEC, mixture=mixture)
    state = after(file("f1"), file("f2", "b"), validated("f1"))
    state, events = step(state, PinDataset(job_id="j1", terms=terms))
    assert due(events) == []  # the further file is not checked yet
    state, events = step(state, validated("f2"))
    (preparation,) = due(events)
    assert preparation.mixture == (MixedBlob(blob="files/f2", sha256="b" * 64, weight_ppm=300_000),)
    assert state["acme"].preparations[preparation.prepare_id].sources == ("a" * 64, "b" * 64)
    often = replace(terms, mixture=(replace(mixture[0], weight_ppm=600_000),))
    _, other = step(state, PinDataset(job_id="j2", terms=often))
    assert due(other)[0].prepare_id != preparation.prepare_id
    _, events = step(state, DeleteFile(file_id="f2"))
    assert isinstance(events[0], Rejected)
    kept = after(KeepDataset(job_id="j1", model_id="m1"), UnpinDataset(job_id="j1"), state=state)
    _, events = step(kept, DeleteFile(file_id="f2"))
    assert isinstance(events[0], Rejected)
    missing = replace(terms, mixture=(MixedFile(file_id="f9", weight_ppm=1),))
    _, events = step(state, PinDataset(job_id="j3", terms=missing))
    assert isinstance(events[0], PinRefused)


class OnlyLookedUp(dict[str, Preparation]):
    """Preparations that no command may go through one by one."""

    def __iter__(self) -> Any:
        pytest.fail("it costs as much as a tenant has preparations")

    keys = values = items = __iter__


def test_review2_w1_a_pin_costs_the_same_however_many_preparations_there_are() -> None:
    files = after(file("f1"), file("f2", "b"), validated("f1"), pin("j1"), pin("j2", "f2"))
    known = OnlyLookedUp(dict(files["acme"].preparations))
    tenant = replace(files["acme"], preparations=cast("Any", known))
    many = files.set("acme", tenant)
    again = decide(many, pin("j3"), context(number=2))
    assert [type(event) for event in again] == [DatasetPinned]
    checked = decide(many, validated("f2"), context(number=3))
    assert len(due(checked)) == 1


def test_equal_preparations_run_once() -> None:
    state = after(file("f1"), file("f2"), validated("f1"), validated("f2"))
    state, first = step(state, pin("j1", "f1"))
    state, second = step(state, pin("j2", "f2"))
    assert len(due(first)) == 1
    assert due(second) == []
    state, events = step(
        state, RecordPrepared(prepare_id=due(first)[0].prepare_id, prepared=PREPARED)
    )
    assert ready(events) == ["j1", "j2"]
    _, third = step(state, pin("j3", "f1"))
    assert ready(third) == ["j3"]
    assert due(third) == []


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"reasoning": "drop"}, {"chat": ChatFormat(sha256="c" * 64)}]
)
def test_another_spec_is_another_preparation(change: dict[str, Any]) -> None:
    state, first = step(after(file("f1"), validated("f1")), pin("j1"))
    other = pin("j2", spec=replace(SPEC, **change))
    _, second = step(state, other)
    assert due(first)[0].prepare_id != due(second)[0].prepare_id


def test_a_pin_waits_for_validation_of_both_files() -> None:
    state = after(file("f1"), file("f2", "c"), pin("j1", "f1", "f2"))
    state, events = step(state, validated("f1"))
    assert due(events) == []
    state, events = step(state, validated("f2"))
    (preparation,) = due(events)
    assert preparation.validation_blob == "files/f2"
    assert preparation.validation_sha256 == "c" * 64


def test_pins_of_a_rejected_file_are_refused_before_and_after_validation() -> None:
    state, events = step(after(file("f1"), pin("j1")), validated("f1", accepted=False))
    assert isinstance(events[0], FileValidated)
    assert isinstance(events[1], PinRefused)
    assert events[1].failure.code == errors.FILE_REJECTED
    (refused,) = decide(state, pin("j2"), context())
    assert isinstance(refused, PinRefused)
    (missing,) = decide(state, pin("j3", "nothing"), context())
    assert isinstance(missing, PinRefused)
    assert missing.failure.code == errors.NOT_FOUND


def test_a_file_that_cannot_be_read_counts_as_rejected() -> None:
    record = RecordValidation(file_id="f1", validation=None, failure=FAILED)
    state, events = step(after(file("f1"), pin("j1")), record)
    assert isinstance(events[0], FileUnreadable)
    assert isinstance(events[1], PinRefused)
    assert decide(state, validated("f1"), context()) == ()


def test_a_failed_preparation_refuses_and_is_tried_again_by_the_next_job() -> None:
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    failed = RecordPrepared(prepare_id=due(events)[0].prepare_id, prepared=None, failure=FAILED)
    state, events = step(state, failed)
    assert isinstance(events[0], PreparationFailed)
    assert isinstance(events[1], PinRefused)
    assert events[1].failure == FAILED
    assert decide(state, failed, context()) == ()
    _, events = step(state, pin("j2"))
    assert len(due(events)) == 1


def test_a_pinned_file_is_not_deleted() -> None:
    state = after(file("f1"), validated("f1"), pin("j1"))
    (refused,) = decide(state, DeleteFile(file_id="f1"), context())
    assert isinstance(refused, Rejected)
    assert refused.code == errors.FILE_IN_USE
    assert refused.reason == refusing("file_used_by_jobs", file_id="f1", jobs="j1")
    state = after(UnpinDataset(job_id="j1"), state=state)
    assert decide(state, UnpinDataset(job_id="j1"), context()) == ()
    (deleted,) = decide(state, DeleteFile(file_id="f1"), context())
    assert isinstance(deleted, FileDeleted)


def test_deletion_erases_what_belongs_to_the_file_alone() -> None:
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    (preparation,) = due(events)
    state = after(
        RecordPrepared(prepare_id=preparation.prepare_id, prepared=PREPARED),
        UnpinDataset(job_id="j1"),
        file("f2"),
        state=state,
    )
    state, events = step(state, DeleteFile(file_id="f1"))
    assert isinstance(events[0], FileDeleted)
    assert events[0].erase == ("files/f1", "t/acme/reports/f1/")
    state, events = step(state, DeleteFile(file_id="f2"))
    assert isinstance(events[0], FileDeleted)
    assert events[0].erase == (
        "files/f2",
        "t/acme/reports/f2/",
        f"t/acme/prepared/{preparation.prepare_id}/",
    )
    assert state["acme"] == TenantDatasets()
    (refused,) = decide(state, DeleteFile(file_id="f2"), context())
    assert isinstance(refused, Rejected)
    assert refused.code == errors.NOT_FOUND


def test_deletion_cancels_a_preparation_without_pins() -> None:
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    state = after(UnpinDataset(job_id="j1"), state=state)
    _, deleted = step(state, DeleteFile(file_id="f1"))
    assert isinstance(deleted[0], FileDeleted)
    assert deleted[0].cancelled == (due(events)[0].prepare_id,)


def test_review2_w1_what_work_stores_after_its_file_was_deleted_is_erased() -> None:
    """Seed 19 of the simulator's artifacts: reports and caches of deleted files were kept."""
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    preparation = due(events)[0].prepare_id
    state = after(UnpinDataset(job_id="j1"), file("f2", "b"), DeleteFile(file_id="f1"), state=state)
    prepared = RecordPrepared(prepare_id=preparation, prepared=PREPARED)
    state, (discarded,) = step(state, prepared)
    assert discarded == WorkDiscarded(erase=(f"t/acme/prepared/{preparation}/",))
    state, _ = step(state, DeleteFile(file_id="f2"))
    state, (discarded,) = step(state, validated("f2"))
    assert discarded == WorkDiscarded(erase=("t/acme/reports/f2/",))
    assert state["acme"] == TenantDatasets()


def test_review2_w1_equal_work_that_is_done_again_has_another_folder() -> None:
    """Seed 1127 of the simulator's artifacts: bytes that were stored again were erased for a file
    that had gone before. Folders that are erased late must never be in use again.
    """
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    (first,) = due(events)
    state = after(UnpinDataset(job_id="j1"), DeleteFile(file_id="f1"), state=state)
    state, events = step(after(file("f2"), validated("f2"), state=state), pin("j2", "f2"), 2)
    (second,) = due(events)
    assert second.work == first.work
    assert second.prepare_id != first.prepare_id
    late = RecordPrepared(prepare_id=first.prepare_id, prepared=PREPARED)
    assert decide(state, late, context()) == (
        WorkDiscarded(erase=(f"t/acme/prepared/{first.prepare_id}/",)),
    )
    failed = replace(late, prepared=None, failure=FAILED)
    assert decide(state, failed, context()) == ()
    _, events = step(state, replace(late, prepare_id=second.prepare_id))
    assert ready(events) == ["j2"]


def test_review2_w1_a_pin_waits_for_the_check_of_its_own_file_whatever_is_prepared() -> None:
    """Seed 2341 of the simulator's artifacts: equal content of another file was accepted, under the
    other file's limit of rows.
    """
    state, events = step(after(file("f1"), validated("f1")), pin("j1"))
    (preparation,) = due(events)
    done = RecordPrepared(prepare_id=preparation.prepare_id, prepared=PREPARED)
    state, early = step(after(file("f2"), file("f3"), state=state), pin("j2", "f2"))
    state, answered = step(state, done)
    state, late = step(state, pin("j3", "f3"))
    assert (ready(early), ready(answered), ready(late)) == ([], ["j1"], [])
    state, events = step(state, validated("f2"))
    assert (ready(events), due(events)) == (["j2"], [])
    _, events = step(state, validated("f3", accepted=False))
    assert isinstance(events[1], PinRefused)


FILES = st.sampled_from(["f1", "f2", "f3"])
JOBS = st.sampled_from(["j1", "j2", "j3", "j4"])


@given(st.data())
def test_every_pin_is_answered_exactly_once(data: st.DataObject) -> None:
    """Whatever the order: a pin that stays ends ready or refused, exactly once."""
    state = INITIAL
    preparations: set[str] = set()
    answers: dict[str, int] = {}
    commands: st.SearchStrategy[Command] = st.one_of(
        st.builds(file, FILES, st.sampled_from(["a", "c"])),
        st.builds(pin, JOBS, FILES, st.one_of(st.none(), FILES)),
        st.builds(lambda name, ok: validated(name, accepted=ok), FILES, st.booleans()),
        st.builds(DeleteFile, file_id=FILES),
    )
    asked: set[str] = set()
    history = data.draw(st.lists(commands, max_size=25))
    history += [validated(name) for name in ("f1", "f2", "f3")]
    for command in history:
        if isinstance(command, PinDataset):
            if command.job_id in asked:
                continue
            asked.add(command.job_id)
        state, events = step(state, command)
        preparations |= {event.prepare_id for event in due(events)}
        _count(answers, events)
    for name in sorted(preparations):
        state, events = step(state, RecordPrepared(prepare_id=name, prepared=PREPARED))
        _count(answers, events)
    assert answers == dict.fromkeys(asked, 1)


def _count(answers: dict[str, int], events: tuple[Event, ...]) -> None:
    for event in events:
        if isinstance(event, DatasetReady | PinRefused):
            answers[event.job_id] = answers.get(event.job_id, 0) + 1
