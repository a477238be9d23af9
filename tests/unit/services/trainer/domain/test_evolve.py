"""What a node should be doing, event by event."""

from functools import reduce

from schemas import pool, training
from schemas.dataset import Prepared
from services.trainer.domain.evolve import evolve
from services.trainer.domain.state import NodeState

SHA = "0" * 64
PREPARED = Prepared(
    version="v",
    train_blob="t",
    train_sha256=SHA,
    validation_blob="v",
    validation_sha256=SHA,
    prompts_blob="p",
    prompts_sha256=SHA,
    train_rows=1,
    validation_rows=1,
    packed_rows=1,
    tokens=1,
    trainable_tokens=1,
)
WORK = training.EvalWork(
    base_id="b",
    base_sha256=SHA,
    base_path="/b",
    prepared=PREPARED,
    max_length=512,
    seed=1,
    adapter=(),
)
START = NodeState(node_id="a", incarnation="a1")


def granted(lease: int = 1, incarnation: str = "a1") -> pool.LeaseGranted:
    return pool.LeaseGranted(
        token=token(lease),
        tenant="acme",
        job_id=f"job{lease}",
        attempt=1,
        role="eval",
        lane="free",
        node_id="a",
        incarnation=incarnation,
        slots=1,
        max_gpu_ms=1,
        price_version="p",
        work=WORK,
        checkpoints=(),
    )


def token(lease: int) -> pool.Token:
    return pool.Token(pool="default", lease=lease)


def draining(lease: int) -> pool.LeaseDraining:
    return pool.LeaseDraining(
        token=token(lease),
        tenant="acme",
        job_id=f"job{lease}",
        attempt=1,
        node_id="a",
        deadline=9,
        reason="closed",
    )


def killed(lease: int) -> pool.LeaseKilled:
    return pool.LeaseKilled(
        token=token(lease), tenant="acme", job_id=f"job{lease}", attempt=1, node_id="a"
    )


def closed(lease: int, attempt: int = 1) -> pool.PlacementClosed:
    return pool.PlacementClosed(
        tenant="acme",
        job_id=f"job{lease}",
        attempt=attempt,
        role="eval",
        outcome="lost",
        cause=None,
        message=None,
        result=None,
        node_id="a",
        used_gpu_ms=0,
        billable_gpu_ms=0,
        lost_gpu_ms=0,
    )


def targets(*events: pool.Event) -> dict[int, str]:
    state = reduce(evolve, events, START)
    return {lease: assignment.target for lease, assignment in state.assignments.items()}


def registered(incarnation: str) -> pool.NodeRegistered:
    return pool.NodeRegistered(
        node_id="a", incarnation=incarnation, slots=1, device="cpu", memory_bytes=1
    )


def test_only_leases_of_this_incarnation_count() -> None:
    assert targets(granted(1), granted(2, "a0"), granted(3, "b1")) == {1: "run"}


def test_targets_only_harden() -> None:
    assert targets(granted(1), draining(1)) == {1: "drain"}
    assert targets(granted(1), killed(1), draining(1)) == {1: "kill"}


def test_a_closed_placement_is_killed_and_a_freed_one_forgotten() -> None:
    assert targets(granted(1), closed(1)) == {1: "kill"}
    assert targets(granted(1), closed(1, attempt=2)) == {1: "run"}
    freed = pool.SlotsFreed(token=token(1), node_id="a")
    assert targets(granted(1), closed(1), freed) == {}


def test_leases_of_other_nodes_are_ignored() -> None:
    assert targets(draining(7), killed(8), closed(9)) == {}


def test_a_later_incarnation_replaces_this_one() -> None:
    assert not evolve(START, registered("a0")).registered
    state = evolve(START, registered("a1"))
    assert (state.registered, state.replaced) == (True, False)
    assert evolve(state, registered("a2")).replaced
