"""Approvals, and base models whose files have changed: no promotion goes around them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.gate import GateRun, RecordGateRun
from schemas.model import (
    AddBase,
    Approval,
    ApprovalRule,
    ApprovalRuleSet,
    ApproveVersion,
    BaseDrifted,
    BasePinned,
    BaseRestored,
    Command,
    DeleteVersion,
    HeldStage,
    PinBase,
    Promote,
    RecordBaseBytes,
    RollBack,
    SetApprovalRule,
    StageMoved,
    VersionApproved,
    VersionFailed,
    VersionGated,
)
from schemas.reasons import refusing
from schemas.streams import GLOBAL
from services.registry.domain.decide import decide
from services.registry.domain.state import (
    APPROVALS_MAX,
    APPROVERS_MAX,
    EXCLUSIVE,
    INITIAL,
    Registry,
)
from tests.unit.services.registry.domain.test_decide import (
    BASE,
    OTHER_SHA,
    SHA,
    after,
    context,
    published,
    quarantine,
    refusal,
    register,
    step,
)

AUTHOR = "key_author"


def versions(*names: str) -> Registry:
    """Published versions, each by a job of AUTHOR, and their base model."""
    state, _ = step(INITIAL, AddBase(base=BASE), key=GLOBAL)
    for name in names:
        submission = register(name)
        state = after(
            replace(submission, terms=replace(submission.terms, author=AUTHOR)), state=state
        )
        state = after(published(name), state=state)
    return state


def rule(required: int, *approvers: str) -> SetApprovalRule:
    return SetApprovalRule(
        rule=ApprovalRule(stage="production", required=required, approvers=approvers)
    )


def approve(model_id: str, key_id: str, stage: HeldStage = "production") -> ApproveVersion:
    return ApproveVersion(model_id=model_id, approval=Approval(stage=stage, key_id=key_id))


def promote(model_id: str, expected: str | None = None) -> Promote:
    return Promote(model_id=model_id, stage="production", expected=expected)


def test_a_promotion_needs_as_many_approvals_as_the_rule_says() -> None:
    state = after(rule(2), state=versions("a"))
    for missing, key in ((2, "x"), (1, "y")):
        refused = refusal(decide(state, promote("a"), context()))
        wanted = refusing("approvals_missing", model_id="a", stage="production", missing=missing)
        assert refused.reason == wanted
        state, events = step(state, approve("a", key))
        approval = Approval(stage="production", key_id=key)
        assert events == (VersionApproved(model_id="a", approval=approval),)
        assert decide(state, approve("a", key), context()) == ()
    assert isinstance(decide(state, promote("a"), context())[0], StageMoved)
    staging = Promote(model_id="a", stage="staging", expected=None)
    assert isinstance(decide(state, staging, context())[0], StageMoved)


def test_authors_and_keys_outside_the_rule_cannot_approve() -> None:
    state = after(rule(1, "x", "y"), state=versions("a"))
    own = refusal(decide(state, approve("a", AUTHOR), context()))
    assert own.reason == refusing("approval_own", model_id="a")
    other = refusal(decide(state, approve("a", "z"), context()))
    assert other.reason == refusing("approval_not_asked", stage="production")
    elsewhere = after(approve("a", "x", "staging"), state=state)
    assert refusal(decide(elsewhere, promote("a"), context())).reason.code == "approvals_missing"


def test_a_later_rule_counts_what_was_approved_before() -> None:
    state = after(approve("a", "z"), approve("a", "x"), state=versions("a"))
    state = after(rule(1, "x"), state=state)
    assert isinstance(decide(state, promote("a"), context())[0], StageMoved)
    state = after(rule(2, "x", "y"), state=state)
    assert refusal(decide(state, promote("a"), context())).reason.code == "approvals_missing"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (rule(3, "x", "y"), refusing("approvers_too_few", required=3, approvers=2)),
        (rule(-1), refusing("approvers_at_most", limit=APPROVERS_MAX)),
        (rule(APPROVERS_MAX + 1), refusing("approvers_at_most", limit=APPROVERS_MAX)),
        (approve("none", "x"), refusing("model_missing", model_id="none")),
    ],
)
def test_other_rules_and_approvals_are_refused(command: Command, reason: object) -> None:
    assert refusal(decide(versions("a"), command, context())).reason == reason


def test_approvals_wait_for_publication_and_never_are_of_quarantined_versions() -> None:
    state = after(register("m"))
    assert refusal(decide(state, approve("m", "x"), context())).reason.code == "model_publishing"
    state = after(register("q", "block"), published("q"))
    assert refusal(decide(state, approve("q", "x"), context())).reason.code == "model_quarantined"


def test_approvals_of_a_version_are_limited() -> None:
    state = after(*(approve("a", f"k{n}") for n in range(APPROVALS_MAX)), state=versions("a"))
    full = refusal(decide(state, approve("a", "one-more"), context()))
    assert full.reason == refusing("approvals_at_most", limit=APPROVALS_MAX)


def test_the_same_rule_again_changes_nothing() -> None:
    state, events = step(versions(), rule(2))
    assert events == (ApprovalRuleSet(rule=rule(2).rule),)
    assert decide(state, rule(2), context()) == ()


def test_a_changed_base_model_makes_its_versions_stale_until_it_is_restored() -> None:
    state = after(promote("a"), promote("b", "a"), state=versions("a", "b", "c"))
    changed = RecordBaseBytes(base_id=BASE.base_id, sha256=OTHER_SHA)
    state, events = step(state, changed, key=GLOBAL)
    assert events == (BaseDrifted(base_id=BASE.base_id, sha256=OTHER_SHA),)
    assert decide(state, changed, context(GLOBAL)) == ()
    back = RollBack(series="series", stage="production", expected="b")
    for command in (promote("c", "b"), back):
        stale = refusal(decide(state, command, context()))
        assert (stale.code, stale.reason.code) == (errors.BASE_CHANGED, "base_drifted")
    archive = Promote(model_id="c", stage="archived", expected=None)
    assert isinstance(decide(state, archive, context())[0], StageMoved)
    whole = RecordBaseBytes(base_id=BASE.base_id, sha256=SHA)
    restored, events = step(state, whole, key=GLOBAL)
    assert events == (BaseRestored(base_id=BASE.base_id),)
    assert decide(restored, whole, context(GLOBAL)) == ()
    assert isinstance(decide(restored, back, context())[0], StageMoved)
    moved, _ = step(state, AddBase(base=replace(BASE, path="/elsewhere")), key=GLOBAL)
    assert isinstance(decide(moved, back, context())[0], StageMoved)


def run(model_id: str, job_id: str = "job-2", **changes: Any) -> RecordGateRun:
    """The gate judged a version again."""
    fields: dict[str, Any] = {"base_sha256": SHA, "verdict": "pass", "scores_sha256": SHA}
    return RecordGateRun(run=GateRun(model_id=model_id, job_id=job_id, **{**fields, **changes}))


def test_a_changed_base_model_makes_its_versions_stale_until_the_gate_ran_again() -> None:
    state = versions("a", "b")
    state, _ = step(state, RecordBaseBytes(base_id=BASE.base_id, sha256=OTHER_SHA), key=GLOBAL)
    pinned = decide(
        state, PinBase(job_id="job-2", base_id=BASE.base_id, base_sha256=OTHER_SHA), context()
    )
    assert pinned == (BasePinned(job_id="job-2", base=replace(BASE, sha256=OTHER_SHA)),)
    state, (gated,) = step(state, run("a", base_sha256=OTHER_SHA))
    assert isinstance(gated, VersionGated)
    assert (gated.quarantined, gated.stage) == (False, "dev")
    assert isinstance(decide(state, promote("a"), context())[0], StageMoved)
    assert refusal(decide(state, promote("b"), context())).reason.code == "base_drifted"
    restored, _ = step(state, RecordBaseBytes(base_id=BASE.base_id, sha256=SHA), key=GLOBAL)
    assert refusal(decide(restored, promote("a"), context())).reason.code == "base_drifted"
    assert isinstance(decide(restored, promote("b"), context())[0], StageMoved)


def test_the_newest_verdict_of_the_gate_holds_but_not_against_a_person() -> None:
    state = after(run("a", verdict="block"), state=versions("a", "b"))
    assert refusal(decide(state, promote("a"), context())).reason.code == "model_quarantined"
    assert decide(state, run("a", verdict="block"), context()) == (), "the same job once"
    state = after(run("a", "job-3"), state=state)
    assert isinstance(decide(state, promote("a"), context())[0], StageMoved)
    state = after(quarantine("a", True), run("a", "job-4"), state=state)
    assert refusal(decide(state, promote("a"), context())).reason.code == "model_quarantined"
    state = after(quarantine("a", False), run("a", "job-5", verdict="block"), state=state)
    assert state.tenants["acme"].versions["a"].quarantined, "what it found since counts"
    state = after(run("a", "job-6", verdict="block", unusable=True), state=state)
    kept = decide(state, quarantine("a", False), context())
    assert refusal(kept).reason.code == "model_unusable"
    gone = decide(state, run("none"), context())
    assert isinstance(gone[0], VersionFailed)


def test_a_version_that_is_not_published_is_not_judged_again() -> None:
    """Its publication would forget the verdict: what is blocked would be free."""
    state = after(register("a"))
    (failed,) = decide(state, run("a", verdict="block"), context())
    assert isinstance(failed, VersionFailed)
    assert (failed.job_id, failed.failure.reason.code) == ("job-2", "start_unpublished")
    state = after(run("a", verdict="block"), published("a"), state=state)
    assert isinstance(decide(state, promote("a"), context())[0], StageMoved)


def test_what_a_person_quarantines_after_the_gate_stays_there_whatever_the_gate_says() -> None:
    state = after(run("a", verdict="block"), quarantine("a", True), state=versions("a"))
    assert decide(state, quarantine("a", True), context()) == ()
    state = after(run("a", "job-3"), state=state)
    assert refusal(decide(state, promote("a"), context())).reason.code == "model_quarantined"
    broken = after(run("a", verdict="block", unusable=True), state=versions("a"))
    broken = after(quarantine("a", True), run("a", "job-3"), state=broken)
    assert broken.tenants["acme"].versions["a"].quarantined


def test_a_version_that_is_blocked_in_a_stage_keeps_it_and_is_no_rollback_target() -> None:
    state = after(promote("a"), run("a", verdict="block"), state=versions("a", "b", "c"))
    assert state.tenants["acme"].versions["a"].stage == "production"
    state = after(promote("b", "a"), state=state)
    back = RollBack(series="series", stage="production", expected="b")
    assert refusal(decide(state, back, context())).reason.code == "stage_without_former"


def test_bytes_of_unknown_base_models_and_of_tenants_are_refused() -> None:
    unknown = RecordBaseBytes(base_id="none", sha256=SHA)
    assert refusal(decide(INITIAL, unknown, context(GLOBAL))).code == errors.NOT_FOUND
    known = RecordBaseBytes(base_id=BASE.base_id, sha256=SHA)
    assert refusal(decide(versions(), known, context())).code == errors.MALFORMED


NAMES = st.sampled_from(["a", "b"])
KEYS = st.sampled_from([AUTHOR, "x", "y", "z"])
COMMANDS: st.SearchStrategy[tuple[str, Command]] = st.one_of(
    st.tuples(st.just("acme"), st.builds(approve, NAMES, KEYS, st.sampled_from(EXCLUSIVE))),
    st.tuples(st.just("acme"), st.builds(promote, NAMES, st.one_of(st.none(), NAMES))),
    st.tuples(st.just("acme"), st.builds(rule, st.integers(0, 2), st.just("x"), st.just("y"))),
    st.tuples(st.just("acme"), st.builds(rule, st.integers(0, 3))),
    st.tuples(st.just("acme"), st.builds(DeleteVersion, model_id=NAMES)),
    st.tuples(
        st.just(GLOBAL),
        st.builds(
            RecordBaseBytes, base_id=st.just(BASE.base_id), sha256=st.sampled_from([SHA, OTHER_SHA])
        ),
    ),
)


@given(st.lists(COMMANDS, max_size=40))
def test_no_promotion_without_its_approvals_or_on_changed_bytes(
    commands: list[tuple[str, Command]],
) -> None:
    """A second account of the rules, kept beside the decider's own state."""
    state, needed, bytes_now = versions("a", "b"), (0, frozenset[str]()), SHA
    agreed: dict[str, set[str]] = {"a": set(), "b": set()}
    for key, command in commands:
        state, events = step(state, command, key=key)
        if any(isinstance(event, Rejected) for event in events):
            continue
        match command:
            case SetApprovalRule():
                needed = (command.rule.required, frozenset(command.rule.approvers))
            case ApproveVersion():
                assert command.approval.key_id != AUTHOR
                if command.approval.stage == "production":
                    agreed[command.model_id].add(command.approval.key_id)
            case RecordBaseBytes():
                bytes_now = command.sha256
            case DeleteVersion():
                agreed[command.model_id].clear()
            case _:
                pass
        for event in events:
            if isinstance(event, StageMoved):
                required, approvers = needed
                keys = agreed[event.model_id]
                assert len(keys & approvers if approvers else keys) >= required
                assert bytes_now == SHA
