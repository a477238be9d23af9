"""Deletion and restoration of versions, jobs that need them, and expiry."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Tick
from schemas.lifetime import (
    KeepVersion,
    ReleaseVersion,
    RestoreVersion,
    VersionErased,
    VersionKept,
    VersionReleased,
)
from schemas.model import (
    BaseRefused,
    Command,
    DeleteVersion,
    Event,
    Promote,
    VersionDeleted,
    VersionRestored,
)
from schemas.reasons import refusing
from schemas.units import DAY_MS, Ms
from services.registry.app import MODELS
from services.registry.domain.decide import decide
from services.registry.domain.evolve import evolve
from services.registry.domain.lifetime import ERASED_MAX, GRACE_MS
from services.registry.domain.state import (
    INITIAL,
    DeletedVersion,
    Registry,
    TenantModels,
    descendant_of,
)
from tests.ticks import next_tick
from tests.unit.services.registry.domain.test_decide import (
    FILE,
    SHA,
    after,
    context,
    published,
    refusal,
    register,
    step,
    versions,
)

DELETE, RESTORE = DeleteVersion(model_id="a"), RestoreVersion(model_id="a")
KEEP = KeepVersion(job_id="ftjob-new", model_id="a")


def step_at(
    state: Registry, command: Command, at: Ms, key: str = "acme"
) -> tuple[Registry, tuple[Event, ...]]:
    ctx: Context = replace(context(key), at=at)
    events = decide(state, command, ctx)
    for event in events:
        state = evolve(state, event, ctx)
    return state, events


def child_of(start_id: str, name: str) -> tuple[Command, Command]:
    child = register(name)
    lineage = replace(child.terms.lineage, start_id=start_id, start_sha256=SHA)
    return replace(child, terms=replace(child.terms, lineage=lineage)), published(name)


def test_a_deleted_version_comes_back_as_it_was() -> None:
    archive = Promote(model_id="a", stage="archived", expected=None)
    before = after(archive, state=versions("a", "b"))
    state, _ = step(before, DELETE)
    assert "a" not in state.tenants["acme"].versions
    assert refusal(step(state, archive)[1]).code == errors.NOT_FOUND
    state, (event,) = step(state, RESTORE)
    assert isinstance(event, VersionRestored)
    assert (event.files, event.stage) == ((FILE,), "archived")
    assert state == before
    assert step(state, RESTORE)[1] == ()
    assert refusal(step(state, RestoreVersion(model_id="none"))[1]).code == errors.NOT_FOUND


def test_its_files_are_erased_after_thirty_days_and_not_before() -> None:
    state, _ = step_at(versions("a"), DELETE, at=7)
    assert next_tick(MODELS, state) == (7 + GRACE_MS, "acme")
    assert step_at(state, Tick(), at=6 + GRACE_MS)[1] == ()
    state, events = step_at(state, Tick(), at=7 + GRACE_MS)
    assert events == (VersionErased(model_id="a", files=(FILE,), job_id="ftjob-a"),)
    assert state.tenants["acme"] == TenantModels()
    assert next_tick(MODELS, state) is None
    assert refusal(step(state, RESTORE)[1]).code == errors.NOT_FOUND


def test_what_must_be_erased_waits_for_nothing() -> None:
    now = replace(DELETE, erase=True)
    state, (event,) = step(versions("a"), now)
    assert isinstance(event, VersionDeleted)
    assert event.erase_at is None
    assert refusal(step(state, RESTORE)[1]).code == errors.NOT_FOUND
    state, _ = step(versions("a"), DELETE)
    state, (event,) = step(state, now)
    assert isinstance(event, VersionErased)
    assert refusal(step(state, now)[1]).code == errors.NOT_FOUND


def test_a_version_stays_while_an_open_job_begins_with_it() -> None:
    state, (kept,) = step(versions("a"), KEEP)
    assert kept == VersionKept(job_id="ftjob-new", model_id="a")
    assert step(state, KEEP)[1] == ()
    for command in (DELETE, replace(DELETE, erase=True)):
        refused = refusal(step(state, command)[1])
        assert refused.reason == refusing("model_kept", model_id="a", jobs="ftjob-new")
    release = ReleaseVersion(job_id="ftjob-new")
    state, (released,) = step(state, release)
    assert released == VersionReleased(job_id="ftjob-new", model_id="a")
    assert step(state, release)[1] == ()
    assert isinstance(step(state, DELETE)[1][0], VersionDeleted)


def test_a_job_cannot_begin_with_a_version_that_was_deleted_before_it() -> None:
    state, _ = step(versions("a"), DELETE)
    (refused,) = step(state, KEEP)[1]
    assert isinstance(refused, BaseRefused)
    assert (refused.job_id, refused.failure.reason.code) == ("ftjob-new", "start_deleted")
    checkpoint = replace(KEEP, model_id="ft:small:acme::1:ckpt-step-5")
    assert step(state, checkpoint)[1] == (), "its files are the job's, not the registry's"


def test_a_version_does_not_come_back_before_the_one_that_it_was_trained_from() -> None:
    state = after(*child_of("a", "b"), state=versions("a"))
    state = after(DeleteVersion(model_id="b"), DELETE, state=state)
    back = RestoreVersion(model_id="b")
    assert refusal(step(state, back)[1]).reason.code == "model_start_deleted"
    assert isinstance(step(after(RESTORE, state=state), back)[1][0], VersionRestored)


def test_a_deleted_name_is_not_taken_by_another_job() -> None:
    state, _ = step(versions("a"), DELETE)
    (failed,) = step(state, register("a", job_id="ftjob-other"))[1]
    assert type(failed).__name__ == "VersionFailed"


def test_many_versions_are_erased_in_several_ticks() -> None:
    (version,) = versions("a").tenants["acme"].versions.values()
    deleted = {
        str(number): DeletedVersion(
            version=replace(version, terms=replace(version.terms, model_id=str(number))),
            erase_at=number,
        )
        for number in range(ERASED_MAX + 1)
    }
    models = TenantModels(deleted=TenantModels().deleted.update(deleted))
    state = replace(INITIAL, tenants=INITIAL.tenants.set("acme", models))
    state, events = step_at(state, Tick(), at=GRACE_MS)
    assert len(events) == ERASED_MAX
    assert next_tick(MODELS, state) == (ERASED_MAX, "acme")


NAMES = st.sampled_from(["a", "b", "c"])
JOBS = st.sampled_from(["j1", "j2"])
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(DeleteVersion, model_id=NAMES, erase=st.sampled_from([False, False, True])),
    st.builds(RestoreVersion, model_id=NAMES),
    st.builds(KeepVersion, job_id=JOBS, model_id=NAMES),
    st.builds(ReleaseVersion, job_id=JOBS),
    st.builds(register, NAMES),
    st.builds(published, NAMES),
    st.just(Tick()),
)
DAYS = st.integers(0, 20)


@given(st.lists(st.tuples(DAYS, COMMANDS), max_size=40))
def test_whatever_happens_nothing_needed_is_erased(history: list[tuple[int, Command]]) -> None:
    """Files go 30 days after their deletion, or at once where that is asked for; not earlier."""
    state = after(*child_of("a", "b"), state=versions("a", "c"))
    now, deleted_at = 0, dict[str, Ms]()
    for days, command in history:
        now += days * DAY_MS
        state, events = step_at(state, command, now)
        models = state.tenants["acme"]
        asked = isinstance(command, DeleteVersion) and command.erase
        for event in events:
            match event:
                case VersionDeleted(erase_at=int()):
                    deleted_at[event.model_id] = now
                case VersionRestored():
                    del deleted_at[event.terms.model_id]
                case VersionErased():
                    assert asked or now >= deleted_at.pop(event.model_id) + GRACE_MS
                    assert event.model_id not in models.versions
                case _:
                    pass
        assert not {*models.versions} & {*models.deleted}
        assert {*models.kept.values()} <= {*models.versions}
        for name in models.deleted:
            assert descendant_of(models, name) is None
