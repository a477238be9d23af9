"""`model`: given events, when a command, then events; and stages under random histories."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.gate import (
    GatePolicy,
    GatePolicySet,
    QuarantineDecision,
    QuarantineSet,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.model import (
    AddBase,
    Base,
    BaseAdded,
    BasePinned,
    BaseRefused,
    CheckpointShared,
    CheckpointUnshared,
    Command,
    DeleteVersion,
    Event,
    Lineage,
    PinBase,
    Promote,
    RecordPublished,
    RegisterVersion,
    RollBack,
    Share,
    ShareCheckpoint,
    Stage,
    StageMoved,
    UnshareCheckpoint,
    Verdict,
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
    VersionTerms,
)
from schemas.reasons import Failure, failing, refusing
from schemas.sealed import Sealed
from schemas.streams import GLOBAL
from schemas.training import BlobFile
from services.registry.domain.decide import decide
from services.registry.domain.evolve import evolve
from services.registry.domain.lifetime import GRACE_MS
from services.registry.domain.state import (
    EXCLUSIVE,
    INITIAL,
    POLICIES_MAX,
    SHARED_MAX,
    Registry,
    holder_of,
)

FAILED = Failure(code=errors.PLATFORM, reason=failing("publishing_failed"))

SHA, OTHER_SHA = "a" * 64, "b" * 64
FILE = BlobFile(name="adapter_model.safetensors", blob="t/acme/x", sha256=SHA, bytes=1)
BASE = Base(
    base_id="small",
    sha256=SHA,
    path="/models/small",
    parameters=1,
    context_length=512,
    family="llama",
    licence="apache-2.0",
    hidden_size=64,
)


def context(key: str = "acme") -> Context:
    return Context(at=1, key=key, tenant=key, command_id=str(UUID(int=1)), seq=1)


def step(
    state: Registry, command: Command, key: str = "acme"
) -> tuple[Registry, tuple[Event, ...]]:
    events = decide(state, command, context(key))
    for event in events:
        state = evolve(state, event, context(key))
    return state, events


def after(*commands: Command, state: Registry = INITIAL) -> Registry:
    for command in commands:
        state, _ = step(state, command)
    return state


def refusal(events: tuple[Event, ...]) -> Rejected:
    (event,) = events
    assert isinstance(event, Rejected)
    return event


def register(
    model_id: str, verdict: Verdict = "pass", job_id: str | None = None
) -> RegisterVersion:
    lineage = Lineage(
        job_id=job_id or f"ftjob-{model_id}",
        base_id="small",
        base_sha256=SHA,
        dataset_version="v",
        training_sha256=SHA,
        config_sha256=SHA,
        steps=1,
        verdict=verdict,
        scores_sha256=SHA,
    )
    return RegisterVersion(
        adapter=(FILE,), terms=VersionTerms(model_id=model_id, series="series", lineage=lineage)
    )


def published(model_id: str) -> RecordPublished:
    return RecordPublished(model_id=model_id, files=(FILE,))


def versions(*names: str) -> Registry:
    state = INITIAL
    for name in names:
        state = after(register(name), published(name), state=state)
    return state


def test_a_base_is_added_once_and_its_bytes_never_change() -> None:
    state, events = step(INITIAL, AddBase(base=BASE), GLOBAL)
    assert events == (BaseAdded(base=BASE),)
    assert decide(state, AddBase(base=BASE), context(GLOBAL)) == ()
    changed = replace(BASE, sha256=OTHER_SHA)
    assert refusal(decide(state, AddBase(base=changed), context(GLOBAL))).code == (
        errors.BASE_CHANGED
    )
    moved = replace(BASE, path="/elsewhere")
    assert decide(state, AddBase(base=moved), context(GLOBAL)) == (BaseAdded(base=moved),)


def test_a_tenant_cannot_add_a_base() -> None:
    assert refusal(decide(INITIAL, AddBase(base=BASE), context())).code == errors.MALFORMED


def test_a_pin_checks_the_hash() -> None:
    state, _ = step(INITIAL, AddBase(base=BASE), GLOBAL)
    pin = PinBase(job_id="j", base_id="small", base_sha256=SHA)
    assert decide(state, pin, context()) == (BasePinned(job_id="j", base=BASE),)
    (changed,) = decide(state, replace(pin, base_sha256=OTHER_SHA), context())
    assert isinstance(changed, BaseRefused)
    assert changed.failure.code == errors.BASE_CHANGED
    (unknown,) = decide(INITIAL, pin, context())
    assert isinstance(unknown, BaseRefused)
    assert unknown.failure.code == errors.UNKNOWN_BASE


def test_a_version_is_published_by_the_first_outcome() -> None:
    state, events = step(INITIAL, register("m"))
    assert isinstance(events[0], VersionSubmitted)
    assert decide(state, register("m"), context()) == ()
    state, events = step(state, published("m"))
    (version,) = events
    assert isinstance(version, VersionPublished)
    assert not version.quarantined
    assert decide(state, published("m"), context()) == ()
    late = RecordPublished(model_id="m", files=(), failure=FAILED)
    assert decide(state, late, context()) == ()


def test_a_failed_publication_can_be_registered_again() -> None:
    failed = RecordPublished(model_id="m", files=(), failure=FAILED)
    state, events = step(after(register("m")), failed)
    assert events == (VersionFailed(model_id="m", job_id="ftjob-m", failure=FAILED),)
    assert isinstance(decide(state, register("m"), context())[0], VersionSubmitted)


def test_a_second_job_cannot_take_a_version_over() -> None:
    state, events = step(versions("m"), register("m", job_id="ftjob-other"))
    assert isinstance(events[0], VersionFailed)
    assert state.tenants["acme"].versions["m"].terms.lineage.job_id == "ftjob-m"


def test_a_blocked_version_is_kept_and_cannot_be_promoted() -> None:
    state = after(register("m", "block"), published("m"))
    for stage in EXCLUSIVE:
        promote = Promote(model_id="m", stage=stage, expected=None)
        assert refusal(decide(state, promote, context())).code == errors.ILLEGAL_STATE
    archive = Promote(model_id="m", stage="archived", expected=None)
    assert isinstance(decide(state, archive, context())[0], StageMoved)


def test_an_inconclusive_version_can_be_promoted() -> None:
    state = after(register("m", "inconclusive"), published("m"))
    promote = Promote(model_id="m", stage="staging", expected=None)
    assert isinstance(decide(state, promote, context())[0], StageMoved)


def test_promotion_compares_before_it_swaps() -> None:
    state = versions("a", "b")
    state = after(Promote(model_id="a", stage="production", expected=None), state=state)
    blind = Promote(model_id="b", stage="production", expected=None)
    conflict = refusal(decide(state, blind, context()))
    assert conflict.code == errors.STAGE_CONFLICT
    assert conflict.reason == refusing("stage_taken", stage="production", holder="a")
    state, events = step(state, replace(blind, expected="a"))
    (moved,) = events
    assert isinstance(moved, StageMoved)
    assert moved.replaced == "a"
    assert state.tenants["acme"].versions["a"].stage == "dev"


def test_roll_back_goes_to_the_version_before_and_then_further() -> None:
    state = versions("a", "b", "c")
    holder = None
    for name in ("a", "b", "c"):
        state = after(Promote(model_id=name, stage="production", expected=holder), state=state)
        holder = name
    for current, former in (("c", "b"), ("b", "a")):
        back = RollBack(series="series", stage="production", expected=current)
        state, events = step(state, back)
        (moved,) = events
        assert isinstance(moved, StageMoved)
        assert (moved.model_id, moved.replaced, moved.by) == (former, current, "rollback")
    back = RollBack(series="series", stage="production", expected="a")
    assert refusal(decide(state, back, context())).code == errors.ILLEGAL_STATE


def test_rolling_staging_back_leaves_production_its_version() -> None:
    state = versions("a", "b")
    state = after(Promote(model_id="a", stage="staging", expected=None), state=state)
    state = after(Promote(model_id="a", stage="production", expected=None), state=state)
    state = after(Promote(model_id="b", stage="staging", expected=None), state=state)
    back = RollBack(series="series", stage="staging", expected="b")
    refused = refusal(decide(state, back, context()))
    assert refused.reason == refusing("stage_without_former", stage="staging")


def test_a_version_that_holds_a_stage_is_not_deleted() -> None:
    state = after(Promote(model_id="a", stage="staging", expected=None), state=versions("a"))
    delete = DeleteVersion(model_id="a")
    assert refusal(decide(state, delete, context())).code == errors.ILLEGAL_STATE
    state = after(Promote(model_id="a", stage="dev", expected=None), state=state)
    state, events = step(state, delete)
    erase_at = context().at + GRACE_MS
    assert events == (
        VersionDeleted(model_id="a", files=(FILE,), job_id="ftjob-a", erase_at=erase_at),
    )
    assert refusal(decide(state, delete, context())).code == errors.NOT_FOUND


def test_a_version_from_which_another_was_trained_is_not_deleted() -> None:
    child = register("b")
    lineage = replace(child.terms.lineage, start_id="a", start_sha256=SHA)
    child = replace(child, terms=replace(child.terms, lineage=lineage))
    state = after(child, published("b"), state=versions("a"))
    used = refusal(decide(state, DeleteVersion(model_id="a"), context()))
    assert used.reason == refusing("model_referenced", model_id="a", descendant="b")
    state = after(DeleteVersion(model_id="b"), state=state)
    assert isinstance(decide(state, DeleteVersion(model_id="a"), context())[0], VersionDeleted)


NAMES = st.sampled_from(["a", "b", "c"])
STAGES: st.SearchStrategy[Stage] = st.sampled_from(["dev", "staging", "production", "archived"])
EXPECTED = st.one_of(st.none(), NAMES)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Promote, model_id=NAMES, stage=STAGES, expected=EXPECTED),
    st.builds(RollBack, series=st.just("series"), stage=STAGES, expected=NAMES),
    st.builds(DeleteVersion, model_id=NAMES),
    st.builds(register, NAMES),
    st.builds(published, NAMES),
)


@given(st.lists(COMMANDS, max_size=40))
def test_a_stage_has_one_holder_whatever_happens(commands: list[Command]) -> None:
    state = versions("a", "b", "c")
    for command in commands:
        state, events = step(state, command)
        models = state.tenants["acme"]
        for stage in EXCLUSIVE:
            in_stage = [name for name, model in models.versions.items() if model.stage == stage]
            holder = holder_of(models, "series", stage).model_id
            assert in_stage == ([] if holder is None else [holder])
        moved = [event for event in events if isinstance(event, StageMoved)]
        assert all(event.model_id != event.replaced for event in moved)


# --- checkpoints that other tenants may fetch ---------------------------------------------------


def share(checkpoint: str, *projects: str) -> ShareCheckpoint:
    shares = tuple(Share(permission_id=f"cp_{checkpoint}{p}", project_id=p) for p in projects)
    return ShareCheckpoint(checkpoint_id=checkpoint, shares=shares)


def _shared_with(events: tuple[Event, ...]) -> list[str]:
    return [event.share.project_id for event in events if isinstance(event, CheckpointShared)]


def test_tenants_with_permission_are_not_shared_with_again() -> None:
    state, events = step(INITIAL, share("a", "x", "y"))
    assert _shared_with(events) == ["x", "y"]
    state, events = step(state, share("a", "y", "z"))
    assert _shared_with(events) == ["z"]
    _, events = step(state, share("b", "y"))
    assert len(events) == 1


def test_a_permission_is_revoked_once_and_by_its_owner() -> None:
    state, _ = step(INITIAL, share("a", "x"))
    unshare = UnshareCheckpoint(permission_id="cp_ax")
    _, (refused,) = step(state, unshare, key="other")
    assert isinstance(refused, Rejected)
    state, events = step(state, unshare)
    assert events == (
        CheckpointUnshared(checkpoint_id="a", share=Share(permission_id="cp_ax", project_id="x")),
    )
    _, (refused,) = step(state, unshare)
    assert isinstance(refused, Rejected)
    assert refused.code == errors.NOT_FOUND


def test_permissions_of_a_tenant_are_limited() -> None:
    state, _ = step(INITIAL, share("a", *map(str, range(SHARED_MAX))))
    _, (refused,) = step(state, share("b", "x"))
    assert isinstance(refused, Rejected)
    assert refused.code == errors.ILLEGAL_STATE


CAUSE = Sealed(key_id="acme.1", nonce=b"0" * 12, ciphertext=b"why")


def quarantine(model_id: str, quarantined: bool) -> SetQuarantine:
    return SetQuarantine(
        decision=QuarantineDecision(
            model_id=model_id, quarantined=quarantined, cause=CAUSE, by=CAUSE
        )
    )


def unusable(model_id: str) -> RegisterVersion:
    """A version whose scores were not finite."""
    command = register(model_id, verdict="block")
    lineage = replace(command.terms.lineage, unusable=True)
    return replace(command, terms=replace(command.terms, lineage=lineage))


def test_a_person_takes_a_blocked_version_out_of_quarantine_and_puts_it_back() -> None:
    state = after(register("m1", verdict="block"), published("m1"))
    state, (event,) = step(state, quarantine("m1", False))
    assert event == QuarantineSet(decision=quarantine("m1", False).decision)
    assert step(state, quarantine("m1", False))[1] == ()
    state, (moved,) = step(state, Promote(model_id="m1", stage="staging", expected=None))
    assert isinstance(moved, StageMoved)
    assert refusal(step(state, quarantine("m1", True))[1]).reason.code == "model_in_stage"
    state = after(Promote(model_id="m1", stage="dev", expected=None), state=state)
    state = after(quarantine("m1", True), state=state)
    assert state.tenants["acme"].versions["m1"].quarantined


def test_a_version_whose_scores_were_not_finite_stays_in_quarantine() -> None:
    state = after(unusable("m1"), published("m1"))
    assert refusal(step(state, quarantine("m1", False))[1]).reason.code == "model_unusable"
    assert refusal(step(state, quarantine("none", False))[1]).reason.code == "model_missing"


def test_a_policy_is_set_once_and_removed() -> None:
    wanted = SetGatePolicy(base_id="small", policy=GatePolicy(alpha_ppm=10_000))
    state, events = step(INITIAL, wanted)
    assert events == (GatePolicySet(base_id="small", policy=GatePolicy(alpha_ppm=10_000)),)
    assert step(state, wanted)[1] == ()
    removed = SetGatePolicy(base_id="small", policy=None)
    state, events = step(state, removed)
    assert events == (GatePolicySet(base_id="small", policy=None),)
    assert step(state, removed)[1] == ()
    assert evolve(state, events[0], context()) == state


def test_policies_of_a_tenant_are_limited() -> None:
    commands = [
        SetGatePolicy(base_id=str(number), policy=GatePolicy()) for number in range(POLICIES_MAX)
    ]
    state = after(*commands)
    more = SetGatePolicy(base_id="more", policy=GatePolicy())
    assert refusal(step(state, more)[1]).reason.code == "policies_at_most"
    assert step(state, SetGatePolicy(base_id="1", policy=None))[1] != ()
