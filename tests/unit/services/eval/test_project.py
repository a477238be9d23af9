"""To-dos for jobs that need a verdict."""

from msgspec.structs import replace

from schemas.job import JobEnded, LookTaken, PhaseSet, VerdictDue, VerdictRecorded
from schemas.lifetime import VersionErased
from schemas.model import StageMoved, VersionDeleted, VersionPublished, VersionRestored
from schemas.training import BlobFile
from services.eval.project import EVALUATIONS, VERDICT, VERSIONS, project
from tests.unit.services.eval.samples import TERMS
from tests.unit.services.gateway.jobs.job_events import SUMMARY
from tests.unit.services.headers import header
from tunery.runtime.verbs import Delete, Done, Todo, Upsert

HEADER = header("job")
DUE = VerdictDue(
    job_id="ftjob-1", scores=BlobFile(name="scores.json", blob="b", sha256="ab" * 32, bytes=1)
)
ENDED = JobEnded(
    job_id="ftjob-1",
    outcome="cancelled",
    model_id=None,
    failure=None,
    trained_tokens=0,
    billable_gpu_ms=0,
    lost_gpu_ms=0,
    released_gpu_ms=0,
    created_at=0,
)


def test_scores_that_wait_for_a_verdict_are_to_do() -> None:
    kept = Upsert(
        EVALUATIONS, {"tenant": "acme", "job_id": "ftjob-1"}, {"blob": "b", "sha256": "ab" * 32}
    )
    assert project(HEADER, DUE) == (Todo(VERDICT, "ftjob-1", "acme", "acme", DUE), kept)


def test_a_verdict_or_the_end_of_the_job_takes_it_off() -> None:
    recorded = VerdictRecorded(job_id="ftjob-1", summary=SUMMARY)
    assert project(HEADER, recorded) == (Done(VERDICT, "ftjob-1"),)
    assert Done(VERDICT, "ftjob-1") in project(HEADER, ENDED)


def test_each_look_has_a_row_of_its_own_which_its_outcome_takes_off() -> None:
    """The outcome of a row has one id: a second look in it would be taken for a repeat."""
    second = replace(DUE, look=2, looks_ppm=(250_000, 500_000, 1_000_000))
    todo, _ = project(HEADER, second)
    assert isinstance(todo, Todo)
    assert todo.id != "ftjob-1"
    (done,) = project(HEADER, LookTaken(job_id="ftjob-1", look=1, comparisons=()))
    assert done == Done(VERDICT, "ftjob-1")
    (done,) = project(HEADER, LookTaken(job_id="ftjob-1", look=2, comparisons=()))
    assert done == Done(VERDICT, todo.id)
    at_second = VerdictRecorded(job_id="ftjob-1", summary=replace(SUMMARY, look=2))
    assert project(HEADER, at_second) == (done,)
    assert done in project(HEADER, ENDED)


def test_other_events_want_no_verdict() -> None:
    assert project(HEADER, PhaseSet(job_id="ftjob-1", phase="evaluating")) == ()


MODELS = header("model")
NEW, OLD = {"tenant": "acme", "model_id": "ft:2"}, {"tenant": "acme", "model_id": "ft:1"}


def test_a_published_version_is_known_with_its_job() -> None:
    published = VersionPublished(terms=TERMS, files=(), quarantined=False)
    known = {"series": TERMS.series, "job_id": TERMS.lineage.job_id, "stage": "dev"}
    key = {"tenant": "acme", "model_id": TERMS.model_id}
    assert project(MODELS, published) == (Upsert(VERSIONS, key, known),)


def test_a_version_that_takes_production_sends_the_former_one_back() -> None:
    moved = StageMoved(
        model_id="ft:2", series="s", stage="production", replaced="ft:1", by="promotion"
    )
    assert project(MODELS, moved) == (
        Upsert(VERSIONS, NEW, {"stage": "production"}),
        Upsert(VERSIONS, OLD, {"stage": "dev"}),
    )


def test_an_erased_version_is_forgotten() -> None:
    erased = VersionErased(model_id="ft:1", files=(), job_id="ftjob-1")
    for event in (VersionDeleted(model_id="ft:1"), erased):
        assert project(MODELS, event) == (Delete(VERSIONS, OLD),)


def test_a_version_that_comes_back_is_still_compared_by_its_newest_gate_run() -> None:
    assert project(MODELS, VersionDeleted(model_id="ft:1", erase_at=9)) == ()
    restored = VersionRestored(terms=TERMS, files=(), stage="dev")
    key = {"tenant": "acme", "model_id": TERMS.model_id}
    assert project(MODELS, restored) == (Upsert(VERSIONS, key, {"stage": "dev"}),)
