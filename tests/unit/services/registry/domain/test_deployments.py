"""Deployments: given events, when a command, then events; and callers that never move back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.deployments import (
    BUCKETS,
    Arm,
    ArmTraffic,
    CountTraffic,
    Deploy,
    Deployed,
    Deployment,
    TrafficCounted,
)
from schemas.envelope import Rejected
from schemas.gate import GateRun, QuarantineDecision, RecordGateRun, SetQuarantine
from schemas.model import (
    AddBase,
    Approval,
    ApprovalRule,
    ApproveVersion,
    DeleteVersion,
    Promote,
    RecordBaseBytes,
    RollBack,
    SetApprovalRule,
    StageMoved,
)
from schemas.sealed import Sealed
from schemas.streams import GLOBAL
from services.registry.domain.decide import decide
from services.registry.domain.state import Registry, holder_key
from tests.unit.services.registry.domain.test_decide import (
    BASE,
    after,
    context,
    published,
    refusal,
    register,
    step,
    versions,
)

KEY = holder_key("series", "production")
ALONE = Deployment(series="series", stage="production", model_id="a", salt="s")
SHARED = replace(ALONE, second=Arm(model_id="b", buckets=1_000))
SEALED = Sealed(key_id="k", nonce=b"", ciphertext=b"")


def deployed(deployment: Deployment = SHARED) -> Registry:
    return after(Deploy(deployment=deployment), state=versions("a", "b", "c"))


def active(state: Registry) -> Deployment:
    return state.tenants["acme"].deployments[KEY].deployment


def test_the_first_version_is_promoted_and_its_deployment_recorded() -> None:
    state, events = step(versions("a", "b"), Deploy(deployment=SHARED))
    moved, deployment = events
    assert isinstance(moved, StageMoved)
    assert (moved.model_id, moved.stage) == ("a", "production")
    assert deployment == Deployed(deployment=replace(SHARED, phase=1))
    assert decide(state, Deploy(deployment=SHARED), context()) == (), "it holds already"


def test_the_holder_of_a_stage_is_replaced_only_as_expected() -> None:
    other = Deploy(deployment=replace(ALONE, model_id="c"))
    assert refusal(decide(deployed(), other, context())).code == errors.STAGE_CONFLICT
    state = after(replace(other, expected="a"), state=deployed())
    assert active(state).model_id == "c"
    assert active(state).second is None


def test_a_larger_share_keeps_the_salt_and_another_version_gets_a_new_one() -> None:
    more = replace(SHARED, second=Arm(model_id="b", buckets=5_000), salt="t")
    state = after(Deploy(deployment=more), state=deployed())
    assert (active(state).salt, active(state).phase) == ("s", 2)
    other = replace(more, second=Arm(model_id="c", buckets=5_000), salt="u")
    state = after(Deploy(deployment=other), state=state)
    assert (active(state).salt, active(state).phase) == ("u", 3)


@pytest.mark.parametrize(
    "end",
    [
        RollBack(series="series", stage="production", expected="b"),
        Promote(model_id="b", stage="dev", expected=None),
    ],
)
def test_a_rollback_is_one_event_and_ends_what_was_shared(end: RollBack | Promote) -> None:
    first = Promote(model_id="a", stage="production", expected=None)
    shared = replace(SHARED, model_id="b", second=Arm(model_id="c", buckets=100))
    state = after(first, Deploy(deployment=shared, expected="a"), state=versions("a", "b", "c"))
    state, events = step(state, end)
    (moved,) = events
    assert isinstance(moved, StageMoved)
    assert KEY not in state.tenants["acme"].deployments


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (replace(SHARED, second=Arm(model_id="a", buckets=1)), errors.MALFORMED),
        (replace(SHARED, shadow=Arm(model_id="b", buckets=1)), errors.MALFORMED),
        (replace(SHARED, second=Arm(model_id="b", buckets=0)), errors.MALFORMED),
        (replace(SHARED, second=Arm(model_id="b", buckets=BUCKETS)), errors.MALFORMED),
        (replace(SHARED, second=Arm(model_id="x", buckets=1)), errors.NOT_FOUND),
        (replace(ALONE, model_id="x"), errors.NOT_FOUND),
        (replace(SHARED, second=Arm(model_id="new", buckets=1)), errors.ILLEGAL_STATE),
        (replace(SHARED, second=Arm(model_id="blocked", buckets=1)), errors.ILLEGAL_STATE),
        (replace(ALONE, shadow=Arm(model_id="blocked", buckets=1)), errors.ILLEGAL_STATE),
    ],
)
def test_a_wrong_deployment_is_refused_and_changes_nothing(wrong: Deployment, code: str) -> None:
    state = after(
        register("new"),
        register("blocked", "block"),
        published("blocked"),
        state=versions("a", "b"),
    )
    assert refusal(decide(state, Deploy(deployment=wrong), context())).code == code


def test_the_second_version_needs_the_approvals_of_the_stage_and_a_shadow_none() -> None:
    state = after(
        SetApprovalRule(rule=ApprovalRule(stage="production", required=1)),
        ApproveVersion(model_id="a", approval=Approval(stage="production", key_id="k")),
        state=versions("a", "b"),
    )
    refused = refusal(decide(state, Deploy(deployment=SHARED), context()))
    assert refused.reason is not None
    assert refused.reason.code == "approvals_missing"
    shadowed = replace(ALONE, shadow=Arm(model_id="b", buckets=BUCKETS))
    assert len(decide(state, Deploy(deployment=shadowed), context())) == 2


@pytest.mark.parametrize(
    "wanted", [SHARED, replace(ALONE, shadow=Arm(model_id="b", buckets=BUCKETS))]
)
def test_review2_no_share_and_no_shadow_goes_to_a_version_whose_base_has_changed(
    wanted: Deployment,
) -> None:
    changed = RecordBaseBytes(base_id=BASE.base_id, sha256="9" * 64)
    state, _ = step(versions("a", "b"), AddBase(base=BASE), key=GLOBAL)
    assert not isinstance(decide(state, Deploy(deployment=wanted), context())[0], Rejected)
    state, _ = step(state, changed, key=GLOBAL)
    rerun = GateRun(
        model_id="a", job_id="j", base_sha256="9" * 64, verdict="pass", scores_sha256="8" * 64
    )
    state, _ = step(state, RecordGateRun(run=rerun))  # the first version was judged again
    assert not isinstance(decide(state, Deploy(deployment=ALONE), context())[0], Rejected)
    refused = refusal(decide(state, Deploy(deployment=wanted), context()))
    assert refused.reason is not None
    assert (refused.code, refused.reason.code) == (errors.BASE_CHANGED, "base_drifted")


def test_a_version_with_a_share_stays_until_it_has_none() -> None:
    quarantine = QuarantineDecision(model_id="b", quarantined=True, cause=SEALED, by=SEALED)
    commands = (
        DeleteVersion(model_id="b"),
        SetQuarantine(decision=quarantine),
        Promote(model_id="b", stage="archived", expected=None),
    )
    for command in commands:
        refused = refusal(decide(deployed(), command, context()))
        assert refused.reason is not None
        assert refused.reason.code == "model_deployed"
        state = after(Deploy(deployment=ALONE), state=deployed())
        assert len(decide(state, command, context())) == 1


@pytest.mark.parametrize("model_id", ["a", "b"])
def test_an_archived_version_is_not_deployed_until_it_is_taken_out(model_id: str) -> None:
    archived = after(
        Promote(model_id=model_id, stage="archived", expected=None), state=versions("a", "b")
    )
    deployments = [SHARED, replace(ALONE, shadow=Arm(model_id="b", buckets=BUCKETS))]
    for deployment in deployments if model_id == "b" else [ALONE]:
        command = Deploy(deployment=deployment)
        refused = refusal(decide(archived, command, context()))
        assert refused.reason is not None
        assert refused.reason.code == "model_archived"
        restored = after(Promote(model_id=model_id, stage="dev", expected=None), state=archived)
        assert len(decide(restored, command, context())) == 2


def counts(phase: int = 1, *buckets: int, salt: str = "s") -> CountTraffic:
    arms = (
        ArmTraffic(model_id="a", role="first", answers=3, prompt_tokens=30, answer_ms=90),
        ArmTraffic(model_id="b", role="second", failures=1),
    )
    return CountTraffic(
        series="series", stage="production", salt=salt, phase=phase, arms=arms, buckets=buckets
    )


def test_counts_of_a_former_deployment_are_dropped() -> None:
    for former in (counts(2), counts(salt="other")):
        assert decide(deployed(), former, context()) == ()
    assert decide(versions("a"), counts(), context()) == ()


@given(st.lists(st.lists(st.integers(-1, BUCKETS), max_size=8), max_size=4))
def test_each_bucket_counts_once_for_the_version_that_answers_it(seen: list[list[int]]) -> None:
    state = deployed()
    for buckets in seen:
        state, (event,) = step(state, counts(1, *buckets))
        assert isinstance(event, TrafficCounted)
    distinct = {bucket for buckets in seen for bucket in buckets if 0 <= bucket < BUCKETS}
    traffic = state.tenants["acme"].deployments[KEY].traffic
    subjects = {arm.role: arm.subjects for arm in traffic}
    if seen:
        second = sum(bucket < 1_000 for bucket in distinct)
        assert subjects == {"first": len(distinct) - second, "second": second}
        assert [arm.answers for arm in traffic] == [3 * len(seen), 0]
        assert [arm.failures for arm in traffic] == [0, len(seen)]
