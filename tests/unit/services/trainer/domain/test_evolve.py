"""State of a node, record by record."""

from functools import reduce
from typing import Any

from msgspec.structs import replace

from schemas import pool, training
from schemas.assignments import Assigned, AssignedAll, AssignedLease, AssignedNode, LeaseOrder
from schemas.reasons import ending
from schemas.sealed import Sealed
from schemas.works import WorkKept
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


def closed(lease: int, attempt: int = 1) -> pool.PlacementClosed:
    return pool.PlacementClosed(
        tenant="acme",
        job_id=f"job{lease}",
        attempt=attempt,
        role="eval",
        end=pool.AttemptEnd(outcome="lost", ended_by="node", reason=ending("node_lost")),
    )


NEW = NodeState(node_id="a", incarnation="a1")


def assigned(lease: int = 1, incarnation: str = "a1", **fields: Any) -> AssignedLease:
    """The lease as the pool says it first; later records have no order."""
    order = LeaseOrder(
        lease=lease_ref(lease),
        members=(member("b1"), member(incarnation)),
        placement=placement(lease),
        work=WORK,
        correlation="req_1",
    )
    fields = {"offset": 1, "target": "run", "order": order, **fields}
    return AssignedLease(
        pool="default", node_id=incarnation[0], incarnation=incarnation, lease=lease, **fields
    )


def node(incarnation: str, offset: int = 1, **fields: Any) -> AssignedNode:
    return AssignedNode(
        pool="default", node_id="a", offset=offset, incarnation=incarnation, **fields
    )


def after(*records: Assigned, state: NodeState = NEW) -> NodeState:
    return reduce(evolve, records, state)


def targets(*records: Assigned) -> dict[int, str]:
    assignments = after(*records).assignments
    return {lease: assignment.target for lease, assignment in assignments.items()}


def test_an_order_brings_all_that_a_lease_needs_and_later_records_what_changed() -> None:
    state = after(assigned(1))
    run = state.assignments[1]
    assert (run.grant.placement, run.grant.work) == (placement(1), WORK)
    assert (run.grant.member, run.grant.members) == (member("a1"), (member("b1"), member("a1")))
    assert (run.correlation, run.sealed_keys, run.rendezvous) == ("req_1", "", None)
    sealed = Sealed(key_id="k", nonce=b"n", ciphertext=b"x")
    changed = after(
        assigned(1, order=None, sealed_keys="sealed"),
        assigned(1, order=None, rendezvous=sealed),
        state=state,
    ).assignments[1]
    assert (changed.sealed_keys, changed.rendezvous, changed.grant) == ("sealed", sealed, run.grant)


def test_security_c2_an_agent_learns_that_its_key_is_withdrawn() -> None:
    def learnt(sender: str, record: Assigned) -> bool:
        return evolve(replace(NEW, sender=sender), record).withdrawn

    first = node("", withdrawn=1)
    assert learnt("node.a", first), "also one that was away, and registers again"
    assert not learnt("node.a#2", first)
    assert not learnt("node.a", replace(first, node_id="b"))
    of_a_cluster = replace(NEW, node_id="a:h200", sender="node.a", registered=True)
    known = evolve(of_a_cluster, first)
    assert (known.withdrawn, known.forgotten) == (True, False)


def test_only_leases_of_this_incarnation_count() -> None:
    assert targets(assigned(1), assigned(2, "a0"), assigned(3, "b1")) == {1: "run"}


def test_a_lease_without_an_order_is_none_that_this_agent_has_to_run() -> None:
    assert targets(assigned(1, order=None)) == {}


def test_targets_only_harden() -> None:
    assert targets(assigned(1), assigned(1, target="drain")) == {1: "drain"}
    assert targets(assigned(1, target="kill"), assigned(1, target="drain")) == {1: "kill"}


def test_a_lease_is_over_once_it_holds_no_slots() -> None:
    assert targets(assigned(1), assigned(2), node("a1", leases=(2,))) == {2: "run"}


def test_late_records_of_a_former_owner_say_nothing() -> None:
    assert targets(node("a1", offset=5), assigned(1, offset=4)) == {}
    assert not after(node("a1", offset=5), node("", offset=4)).forgotten


def test_a_later_incarnation_replaces_this_one() -> None:
    assert not after(node("a0")).registered
    state = after(node("a1"))
    assert (state.registered, state.replaced) == (True, False)
    assert after(node("a2", former=("a1",)), state=state).replaced
    assert after(node("a2", former=("a1", "a0"))).replaced, "it may have missed its own"


def test_a_node_that_the_pool_does_not_know_is_forgotten() -> None:
    assert not after(node("")).forgotten, "it has not registered yet"
    assert after(node("a1"), node("", offset=2)).forgotten
    everything = AssignedAll(pool="default", offset=3)
    assert not after(everything).forgotten
    assert not after(node("a1", offset=3), everything).forgotten
    assert after(node("a1", offset=2), everything).forgotten, "its owner died before it said so"


def test_a_node_that_leaves_gets_nothing_more() -> None:
    assert after(node("a1", leaving=True)).leaving
    assert not after(node("a0", leaving=True)).leaving
