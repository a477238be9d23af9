"""Versions of named datasets, and the files that models' lineages name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    AddPart,
    Command,
    CompleteUpload,
    CreateUpload,
    DatasetKept,
    DatasetReleased,
    DeleteFile,
    FileContent,
    FileDeleted,
    FileRegistered,
    KeepDataset,
    RegisterFile,
    ReleaseDataset,
    UnpinDataset,
)
from schemas.envelope import Rejected, Tick
from schemas.reasons import refusing
from schemas.storage import DatasetName, FileTerms, UploadPart, UploadTerms
from services.ingest.app import DATASETS
from services.ingest.domain import versions
from services.ingest.domain.decide import decide
from services.ingest.domain.state import INITIAL, TenantDatasets
from tests.ticks import next_tick
from tests.unit.services.ingest.domain.test_decide import (
    SEALED,
    after,
    context,
    file,
    pin,
    step,
    validated,
)

FAQ, TOUR = DatasetName(key="hmac-faq", name=SEALED), DatasetName(key="hmac-tour", name=SEALED)
NAMES = (FAQ, TOUR, None)


def named(file_id: str, name: DatasetName | None = FAQ) -> RegisterFile:
    command = file(file_id)
    return replace(command, terms=replace(command.terms, dataset=name))


def lineage(job_id: str = "j1") -> KeepDataset:
    return KeepDataset(job_id=job_id, model_id=f"ft:{job_id}")


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=30))
def test_version_numbers_rise_by_one_despite_deletions(
    uploads: list[tuple[DatasetName | None, bool]],
) -> None:
    state, given_so_far = INITIAL, {FAQ.key: 0, TOUR.key: 0}
    for number, (name, goes) in enumerate(uploads):
        state, (event,) = step(state, named(f"f{number}", name))
        assert isinstance(event, FileRegistered)
        if name is None:
            assert event.version is None
        else:
            given_so_far[name.key] += 1
            assert event.version == given_so_far[name.key]
        if goes:
            state = after(DeleteFile(file_id=f"f{number}"), state=state)


def test_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NAMES_MAX", 1)
    state = after(named("f1"))
    (refused,) = decide(state, named("f2", TOUR), context())
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param) == (errors.ILLEGAL_STATE, "dataset")
    for allowed in (named("f2", FAQ), named("f2", None)):
        assert isinstance(decide(state, allowed, context())[0], FileRegistered)


def test_a_file_in_a_lineage_is_deleted_after_the_model_only() -> None:
    state = after(named("f1"), validated("f1"), pin("j1"))
    state, (kept,) = step(state, lineage())
    assert kept == DatasetKept(
        job_id="j1", model_id="ft:j1", training_file="f1", validation_file=None
    )
    assert decide(state, lineage(), context()) == ()
    state = after(UnpinDataset(job_id="j1"), state=state)
    (refused,) = decide(state, DeleteFile(file_id="f1"), context())
    assert isinstance(refused, Rejected)
    assert refused.code == errors.FILE_IN_USE
    assert refused.reason == refusing(
        "file_used_by_models", file_id="f1", models="ft:j1", others=0, model="ft:j1"
    )
    state, (released,) = step(state, ReleaseDataset(job_id="j1"))
    assert released == DatasetReleased(job_id="j1")
    assert decide(state, ReleaseDataset(job_id="j1"), context()) == ()
    assert isinstance(decide(state, DeleteFile(file_id="f1"), context())[0], FileDeleted)


def test_a_file_without_a_name_is_kept_as_well_and_both_files_of_a_job_are() -> None:
    state = after(file("f1"), validated("f1"), file("f2", "c"), validated("f2"))
    state = after(pin("j1", "f1", "f2"), lineage(), UnpinDataset(job_id="j1"), state=state)
    for name in ("f1", "f2"):
        assert isinstance(decide(state, DeleteFile(file_id=name), context())[0], Rejected)


def test_a_released_job_keeps_no_files() -> None:
    state = after(file("f1"), validated("f1"), pin("j1"), UnpinDataset(job_id="j1"))
    assert decide(state, lineage(), context()) == ()


def test_a_file_in_a_lineage_outlives_its_time() -> None:
    expiring = named("f1")
    expiring = replace(expiring, terms=replace(expiring.terms, expires_after_ms=1_000))
    state = after(expiring, validated("f1"), pin("j1"), lineage(), UnpinDataset(job_id="j1"))
    late = replace(context(), at=1_000_000)
    assert (next_tick(DATASETS, state), decide(state, Tick(), late)) == (None, ())
    state = after(ReleaseDataset(job_id="j1"), state=state)
    assert next_tick(DATASETS, state) == (1_001, "acme")
    assert isinstance(decide(state, Tick(), late)[0], FileDeleted)


FILES, JOBS = st.sampled_from(["f1", "f2"]), st.sampled_from(["j1", "j2"])
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(named, FILES),
    st.builds(validated, FILES),
    st.builds(pin, JOBS, FILES, st.one_of(st.none(), FILES)),
    st.builds(lineage, JOBS),
    st.builds(UnpinDataset, job_id=JOBS),
    st.builds(ReleaseDataset, job_id=JOBS),
    st.builds(DeleteFile, file_id=FILES),
    st.just(Tick()),
)


@given(st.lists(COMMANDS, max_size=40))
def test_files_of_a_lineage_exist_after_any_history(commands: list[Command]) -> None:
    state = INITIAL
    for command in commands:
        state, _ = step(state, command)
        datasets = state.get("acme", TenantDatasets())
        for kept in datasets.kept.values():
            assert set(kept.files) <= set(datasets.files)


def test_the_file_has_what_the_upload_declared() -> None:
    create = CreateUpload(
        upload_id="u",
        terms=UploadTerms(
            media_type="a",
            bytes=1,
            file=FileTerms(purpose="fine-tune", name=SEALED, dataset=FAQ, rows_max=100),
        ),
    )
    part = AddPart(upload_id="u", part=UploadPart(part_id="p", bytes=1, sha256="a" * 64))
    done = CompleteUpload(
        upload_id="u",
        parts=("p",),
        file_id="f1",
        content=FileContent(bytes=1, sha256="a" * 64, blob="b"),
    )
    _, (registered, _) = step(after(create, part), done)
    assert isinstance(registered, FileRegistered)
    assert (registered.terms.dataset, registered.version, registered.terms.rows_max) == (
        FAQ,
        1,
        100,
    )
