"""State of a node, event by event."""

from functools import reduce
from typing import Any

from msgspec.structs import replace

from schemas import errors, pool, training
from schemas.envelope import Rejected
from schemas.lease_keys import LeaseHolder, LeaseKeysSealed
from schemas.node import NodeDescription, NodeKeysWithdrawn
from schemas.reasons import ending, refusing
from schemas.sealed import Sealed
from schemas.works import WorkForgotten, WorkKept
from services.trainer.domain.evolve import evolve
from services.trainer.domain.state import Grant, NodeState
from simulator.control_plane.samples import PREPARED

SHA = "0" * 64
WORK = training.EvalWork(
    base_id="b",
    base_sha256=SHA,
    base_path="/b",
    prepared=PREPARED,
    max_length=512,
    seed=1,
    adapter=(),
)
WORK_ID = training.work_id_of(WORK)


def placement(number: int) -> pool.Placement:
    return pool.Placement(
        tenant="acme",
        job_id=f"job{number}",
        attempt=1,
        role="eval",
        lane="free",
        slots=1,
        max_gpu_ms=1,
        price_version="p",
        work_id=WORK_ID,
        checkpoints=(),
        excluded_nodes=(),
        first_submitted_at=0,
        p50_ms=1,
        p90_ms=1,
        device="cpu",
        memory_bytes=1,
    )


def kept(number: int) -> WorkKept:
    described = training.WorkDescription(job_id=f"job{number}", work_id=WORK_ID, work=WORK)
    return WorkKept(tenant="acme", description=described)


def queued(number: int) -> pool.PlacementQueued:
    return pool.PlacementQueued(placement=placement(number))


def lease_ref(number: int) -> pool.LeaseRef:
    return pool.LeaseRef(
        token=token(number),
        tenant="acme",
        job_id=f"job{number}",
        attempt=1,
        role="eval",
        lane="free",
        price_version="p",
    )


def member(incarnation: str) -> pool.LeaseMember:
    return pool.LeaseMember(node_id=incarnation[0], incarnation=incarnation, slots=1, devices=(0,))


def granted(lease: int = 1, incarnation: str = "a1") -> pool.LeaseGranted:
    return pool.LeaseGranted(lease=lease_ref(lease), members=(member(incarnation),))


def grant(slots: int = 1, **changes: Any) -> Grant:
    """What an agent runs: lease 1 of this node, with changes of its placement."""
    return Grant(
        lease=replace(lease_ref(1), role=changes.get("role", "eval")),
        member=replace(member("a1"), devices=tuple(range(slots)), slots=slots),
        placement=replace(placement(1), checkpoints=changes.get("checkpoints", ()), slots=slots),
        work=changes.get("work", WORK),
    )


def token(lease: int) -> pool.Token:
    return pool.Token(pool="default", lease=lease)


def draining(lease: int) -> pool.LeaseDraining:
    return pool.LeaseDraining(
        lease=lease_ref(lease), deadline=9, ended_by="tenant", reason=ending("paused")
    )


def killed(lease: int) -> pool.LeaseKilled:
    return pool.LeaseKilled(lease=lease_ref(lease), ended_by="tenant", reason=ending("cancelled"))


def closed(lease: int, attempt: int = 1) -> pool.PlacementClosed:
    return pool.PlacementClosed(
        tenant="acme",
        job_id=f"job{lease}",
        attempt=attempt,
        role="eval",
        end=pool.AttemptEnd(outcome="lost", ended_by="node", reason=ending("node_lost")),
    )


def freed(lease: int, node_id: str = "a") -> pool.MemberFreed:
    return pool.MemberFreed(lease=lease_ref(lease), node_id=node_id)


START = reduce(
    evolve,
    [event for number in (1, 2, 3) for event in (kept(number), queued(number))],
    NodeState(node_id="a", incarnation="a1"),
)


def targets(*events: pool.Event) -> dict[int, str]:
    state = reduce(evolve, events, START)
    return {lease: assignment.target for lease, assignment in state.assignments.items()}


def registered(incarnation: str) -> pool.NodeRegistered:
    described = NodeDescription(
        node_id="a", incarnation=incarnation, slots=1, device="cpu", memory_bytes=1
    )
    return pool.NodeRegistered(node=described)


def test_an_agent_learns_the_members_of_a_lease_and_how_the_first_is_reached() -> None:
    """Leases of other nodes say nothing here."""
    both = replace(granted(), members=(member("b1"), member("a1")))
    sealed = Sealed(key_id="k", nonce=b"n", ciphertext=b"x")
    opened = pool.RendezvousOpened(lease=lease_ref(1), rendezvous=sealed)
    before = evolve(evolve(START, opened), both)
    (assignment,) = before.assignments.values()
    assert (assignment.grant.members, assignment.rendezvous) == (both.members, None)
    (assignment,) = evolve(before, opened).assignments.values()
    assert assignment.rendezvous == sealed


def test_security_c2_an_agent_learns_that_its_key_is_withdrawn() -> None:
    def learnt(sender: str, event: pool.Event) -> bool:
        return evolve(replace(START, sender=sender), event).withdrawn

    first = NodeKeysWithdrawn(node_id="a", number=1)
    assert learnt("node.a", first)
    assert not learnt("node.a#2", first)
    assert not learnt("node.a", replace(first, node_id="b"))
    reason = refusing("sender_withdrawn", sender="node.a")
    refused = Rejected(code=errors.SENDER_REFUSED, reason=reason)
    assert learnt("node.a", refused), "also one that was away, and registers again"
    assert not learnt("node.a#2", refused)


def test_only_leases_of_this_incarnation_count() -> None:
    assert targets(granted(1), granted(2, "a0"), granted(3, "b1")) == {1: "run"}


def test_targets_only_harden() -> None:
    assert targets(granted(1), draining(1)) == {1: "drain"}
    assert targets(granted(1), killed(1), draining(1)) == {1: "kill"}


def test_a_closed_placement_is_killed_and_a_freed_one_forgotten() -> None:
    assert targets(granted(1), closed(1)) == {1: "kill"}
    assert targets(granted(1), closed(1, attempt=2)) == {1: "run"}
    assert targets(granted(1), closed(1), freed(1)) == {}
    assert targets(granted(1), closed(1), freed(1, "b")) == {1: "kill"}


def test_a_grant_brings_its_placement_and_work() -> None:
    state = evolve(START, granted(1))
    run = state.assignments[1].grant
    assert (run.placement, run.work, run.member.devices) == (placement(1), WORK, (0,))
    assert "job1" not in state.placements
    forgotten = evolve(state, WorkForgotten(job_id="job1"))
    assert "job1" not in forgotten.works
    assert forgotten.assignments == state.assignments


def test_a_gang_is_run_by_each_of_its_nodes() -> None:
    gang = replace(granted(1), members=(member("b1"), member("a1")))
    assert targets(gang) == {1: "run"}


def test_a_withdrawn_placement_and_an_unknown_work_are_not_run() -> None:
    assert targets(closed(1), granted(1)) == {}
    assert targets(WorkForgotten(job_id="job1"), granted(1)) == {}


def test_leases_of_other_nodes_are_ignored() -> None:
    assert targets(draining(7), killed(8), closed(9)) == {}


def test_a_later_incarnation_replaces_this_one() -> None:
    assert not evolve(START, registered("a0")).registered
    state = evolve(START, registered("a1"))
    assert (state.registered, state.replaced) == (True, False)
    assert evolve(state, registered("a2")).replaced


def test_an_agent_learns_of_keys_that_are_for_itself() -> None:
    def learnt(incarnation: str, lease: int = 1) -> str:
        holder = LeaseHolder(
            lease=lease,
            tenant="acme",
            job_id="job1",
            attempt=1,
            node_id="a",
            incarnation=incarnation,
        )
        sealed = LeaseKeysSealed(holder=holder, sealed_keys="sealed")
        return evolve(evolve(START, granted()), sealed).assignments[1].sealed_keys

    assert learnt("a1") == "sealed"
    assert (learnt("a2"), learnt("a1", lease=2)) == ("", "")
