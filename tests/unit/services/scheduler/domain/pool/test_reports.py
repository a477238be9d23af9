"""Reports of agents count once, under the lease's own token, within the lease's lifetime."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Message, Rejected
from schemas.ids import SESSION
from schemas.pool import (
    CheckpointAccepted,
    LeaseStarted,
    RendezvousOpened,
    ReportCheckpoint,
    ReportRendezvous,
    Token,
    UsageCredited,
)
from schemas.reasons import skipping
from schemas.sealed import Sealed
from schemas.training import SkippedCheckpoint
from simulator.control_plane.samples import (
    FILE,
    MINUTE,
    POOL,
    TRAINED,
    checkpoint,
    describe,
    node,
    request,
)
from tests.unit.services.scheduler.domain.pool.test_decide import (
    begun,
    end_of,
    exited,
    freed,
    pool,
    ran_before,
    running,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of


def reported(step: int, captured_ms: int = 0, attempt: int = 1) -> ReportCheckpoint:
    return ReportCheckpoint(
        token=token(), incarnation="a-1", checkpoint=checkpoint(step, attempt, captured_ms)
    )


def code_of(events: tuple[Any, ...]) -> str:
    (refused,) = events
    assert isinstance(refused, Rejected)
    return refused.code


ANOTHER_POOL = Token(pool="other", lease=1)


@pytest.mark.parametrize(
    "report",
    [
        begun(2),
        exited(2),
        begun(incarnation="a-0"),
        exited(incarnation="a-2"),
        exited(token=ANOTHER_POOL),
        begun(token=ANOTHER_POOL),
    ],
)
def test_a_report_with_another_token_or_incarnation_is_stale(report: Message) -> None:
    decider = running()
    before = decider.state
    assert code_of(decider.when(report)) == errors.STALE_TOKEN
    assert decider.state == before


def test_only_the_first_member_says_where_the_others_meet_it_and_only_before_the_start() -> None:
    decider = pool().accept(request(slots=2), node("a", "a-1", 1), node("b", "b-1", 1))
    sealed = Sealed(key_id="k", nonce=b"n", ciphertext=b"x")
    report = ReportRendezvous(token=token(), incarnation="a-1", rendezvous=sealed)
    assert code_of(decider.when(replace(report, incarnation="b-1"))) == errors.STALE_TOKEN
    (opened,) = decider.when(report)
    assert isinstance(opened, RendezvousOpened)
    assert (opened.lease.token, opened.rendezvous) == (token(), sealed)
    decider.accept(begun())
    assert code_of(decider.when(report)) == errors.STALE_TOKEN
    assert decider.refolded() == decider.state


def skipped(manifest: str) -> tuple[SkippedCheckpoint, ...]:
    return (SkippedCheckpoint(manifest_sha256=manifest, reason=skipping("blob_missing")),)


NEWER, OLDER = checkpoint(9, 1, 9 * MINUTE), checkpoint(5, 1, 5 * MINUTE)


@pytest.mark.parametrize(
    ("loaded", "lost_ms"), [(None, 9 * MINUTE), (OLDER.manifest_sha256, 4 * MINUTE)]
)
def test_work_behind_a_checkpoint_that_cannot_be_used_is_credited(
    loaded: str | None, lost_ms: int
) -> None:
    decider = ran_before().accept(request(attempt=2, checkpoints=(NEWER, OLDER)))
    events = decider.when(begun(2, loaded=loaded, skipped=skipped(NEWER.manifest_sha256)))
    assert names(events) == ["LeaseStarted", "UsageCredited"]
    credit = of(events, UsageCredited)
    assert (credit.lost_gpu_ms, credit.cause) == (lost_ms, "skipped_checkpoint")
    decider.at += MINUTE
    closed = end_of(decider.when(exited(2, outcome="succeeded", elapsed_ms=MINUTE, result=TRAINED)))
    assert closed.lost_gpu_ms == lost_ms


def test_nothing_is_credited_where_nothing_was_skipped_or_lost() -> None:
    decider = pool().accept(node(), request())
    events = decider.when(begun(skipped=skipped("c" * 64)))
    assert [type(event) for event in events] == [LeaseStarted]


def test_a_checkpoint_counts_once_and_within_the_life_of_its_lease() -> None:
    decider = running()
    decider.at += 10 * MINUTE
    early, late = reported(1, MINUTE), reported(2, 10**12)
    assert of(decider.when(early), CheckpointAccepted).checkpoint.captured_ms == MINUTE
    assert decider.when(early) == ()
    assert of(decider.when(late), CheckpointAccepted).checkpoint.captured_ms == 10 * MINUTE
    # Time runs forward only, whatever the agent's clock says.
    older = of(decider.when(reported(3, 0)), CheckpointAccepted)
    assert older.checkpoint.captured_ms == 10 * MINUTE


def test_a_session_that_has_done_nothing_since_its_checkpoint_has_lost_nothing() -> None:
    job_id = f"{SESSION}1"
    decider = pool().accept(describe(job_id), node(), request(job_id=job_id), begun())
    decider.at += 10 * MINUTE
    decider.accept(reported(1, MINUTE))
    again = reported(1, 9 * MINUTE)
    assert of(decider.when(again), CheckpointAccepted).checkpoint.captured_ms == 9 * MINUTE
    assert decider.when(again) == ()
    assert decider.when(reported(1, MINUTE)) == ()  # reports overtake each other
    decider.at += MINUTE
    closed = end_of(decider.when(exited(outcome="preempted", elapsed_ms=11 * MINUTE)))
    assert closed.lost_gpu_ms == 2 * MINUTE


@pytest.mark.parametrize("says_so", [True, False])
def test_a_session_that_waits_for_its_client_makes_way_for_an_earlier_lane(says_so: bool) -> None:
    lasts: dict[str, Any] = {"lane": "free", "p50_ms": 120 * MINUTE, "p90_ms": 120 * MINUTE}
    decider = pool().accept(
        describe(f"{SESSION}1"),
        node("a", "a-1", 1),
        request(job_id=f"{SESSION}1", max_gpu_ms=120 * MINUTE, **lasts),
        begun(),
    )
    decider.at += MINUTE
    decider.accept(reported(1, MINUTE))
    decider.at += 30 * MINUTE
    if says_so:
        decider.accept(reported(1, 31 * MINUTE))
    events = decider.when(request("ftjob-2", lane="premium"))
    assert ("LeaseDraining" in names(events)) == says_so


def test_checkpoints_belong_to_the_running_attempt_of_a_training() -> None:
    waiting_for_start = pool().accept(node(), request())
    assert code_of(waiting_for_start.when(reported(1))) == errors.ILLEGAL_STATE
    assert code_of(running().when(reported(1, attempt=2))) == errors.ILLEGAL_STATE
    scoring = pool().accept(node(), request(role="eval"), begun())
    assert code_of(scoring.when(reported(1))) == errors.ILLEGAL_STATE


def ended() -> Decider:
    decider = running()
    decider.at += 10 * MINUTE
    return decider.accept(exited(outcome="succeeded", result=TRAINED))


def test_a_member_is_freed_once_by_the_agent_that_runs_it() -> None:
    decider = ended()
    assert code_of(decider.when(freed(incarnation="a-0"))) == errors.STALE_TOKEN
    elsewhere = replace(freed(), node_id="b")
    assert code_of(decider.when(elsewhere)) == errors.STALE_TOKEN
    assert names(decider.when(freed())) == ["MemberFreed"]
    assert decider.when(freed()) == ()
    assert not decider.state[POOL].leases


def test_slots_of_an_unknown_lease_are_free_already() -> None:
    decider = running()
    assert decider.when(freed(7)) == ()
    assert decider.when(replace(freed(), token=ANOTHER_POOL)) == ()
    assert len(decider.state[POOL].leases) == 1


def test_security_c1_a_checkpoint_may_only_name_files_of_its_leases_tenant() -> None:
    """An agent named rows of tenant A in a checkpoint of C's job, and C downloaded them."""
    decider = running()
    decider.when(begun())
    before = decider.state
    for blob in ("t/globex/files/rows", "t/acmeother/a", "rows"):
        files = (replace(FILE, blob=blob),)
        report = replace(reported(1), checkpoint=replace(checkpoint(1), files=files))
        assert code_of(decider.when(report)) == errors.FORBIDDEN
    assert decider.state == before
    assert names(decider.when(reported(1))) == ["CheckpointAccepted"]


def test_security_c1_a_result_may_only_name_files_of_its_leases_tenant() -> None:
    decider = running()
    decider.when(begun())
    foreign = replace(TRAINED, adapter=(replace(FILE, blob="t/globex/files/rows"),))
    report = exited(outcome="succeeded", elapsed_ms=MINUTE, result=foreign)
    assert code_of(decider.when(report)) == errors.FORBIDDEN
