"""Nodes that fit the constraints of a request."""

from dataclasses import replace
from typing import Any

from services.gateway.jobs.domain.bodies import PlacementBody
from services.gateway.jobs.domain.node_choice import NodeKind, choose_nodes
from services.gateway.jobs.domain.requested import RequestProblem
from tunery.plan.scheduling.requests import GIB

GPU = NodeKind(is_alive=True, device="cuda", accelerator="", slots=1, memory_bytes=80)
A100, H200 = replace(GPU, accelerator="a100"), replace(GPU, accelerator="h200")
CPU = replace(GPU, device="cpu", slots=4)


def chosen(*nodes: NodeKind, **asked: Any) -> list[NodeKind]:
    choice = choose_nodes(PlacementBody(**asked), nodes)
    assert choice.problem is None
    return list(choice.nodes)


def problem(*nodes: NodeKind, **asked: Any) -> RequestProblem:
    choice = choose_nodes(PlacementBody(**asked), nodes)
    assert choice.problem is not None
    return choice.problem


def test_a_model_of_device_is_one_that_the_pool_has() -> None:
    assert chosen(GPU, A100, H200, accelerator="h200") == [H200]
    # A pool without any node says nothing of those that it will have.
    assert chosen(accelerator="h200") == []
    refused = problem(GPU, A100, H200, accelerator="b200")
    assert refused.param == "placement.accelerator"
    assert refused.message == "no node of the pool has b200 devices: there are a100, h200"
    assert "they do not say their model" in problem(GPU, accelerator="b200").message


def test_a_job_that_must_not_be_on_spot_machines_needs_others() -> None:
    on_spot = replace(H200, spot=True)
    assert chosen(on_spot, A100, spot=False) == [A100]
    assert chosen(on_spot, A100) == [on_spot, A100]
    refused = problem(on_spot, spot=False)
    assert refused.param == "placement.spot"
    assert "all such nodes of the pool are spot machines" in refused.message
    assert problem(on_spot, A100, spot=False, accelerator="h200").param == "placement.spot"


def test_where_all_nodes_are_tainted_a_job_has_to_tolerate_the_taints_of_one() -> None:
    """Such a job was accepted, and waited for ever."""
    research, both = replace(A100, taints=("research",)), replace(A100, taints=("research", "eu"))
    assert chosen(research, H200) == [H200]
    assert chosen(research, both, tolerations=["research"]) == [research]
    refused = problem(both, research)
    assert refused.param == "placement.tolerations"
    assert refused.message == (
        "all such nodes of the pool are kept for jobs that tolerate their taints: "
        "name all of eu, research or research"
    )
    assert problem(both, H200, accelerator="a100").param == "placement.tolerations"


def test_a_domain_is_one_that_such_nodes_have_and_others_count_where_the_wait_ends() -> None:
    near, far = replace(A100, domain="rack-1"), replace(H200, domain="rack-2")
    assert chosen(near, far, domain="rack-1") == [near]
    assert chosen(near, far, domain="rack-1", domain_wait_minutes=5) == [near, far]
    assert chosen(domain="rack-1") == []
    for wait in ({}, {"domain_wait_minutes": 5}):
        refused = problem(near, far, domain="rack-9", **wait)
        assert refused.param == "placement.domain"
        assert refused.message == (
            "no such node of the pool is in the domain rack-9: there are rack-1, rack-2"
        )
    assert "they do not say their domain" in problem(GPU, domain="rack-9").message
    assert problem(near, far, domain="rack-1", accelerator="h200").param == "placement.domain"
    assert problem(near, domain_wait_minutes=5).param == "placement.domain_wait_minutes"


def test_the_device_is_that_of_live_nodes_that_the_job_may_have() -> None:
    def device(*nodes: NodeKind, **asked: Any) -> str:
        return choose_nodes(PlacementBody(**asked), nodes).device

    assert (device(), device(CPU), device(CPU, GPU)) == ("cpu", "cpu", "cuda")
    gone = replace(GPU, is_alive=False)
    assert (device(CPU, gone), device(gone)) == ("cpu", "cuda")
    # Tainted GPUs are nothing to a job that does not tolerate their taints.
    tainted = replace(GPU, taints=("research",))
    assert device(CPU, tainted) == "cpu"
    assert device(CPU, tainted, tolerations=["research"]) == "cuda"
    both = choose_nodes(PlacementBody(), (CPU, A100))
    assert list(both.of_device) == [A100]


def test_models_that_score_are_asked_by_every_node_that_the_job_may_get() -> None:
    def problem_of(*nodes: NodeKind, **asked: Any) -> RequestProblem | None:
        return choose_nodes(PlacementBody(**asked), nodes, asks_models=True).problem

    asks, silent = replace(A100, scores=True), H200
    assert problem_of() is None
    assert problem_of(asks) is None
    refused = problem_of(asks, silent)
    assert refused is not None
    assert refused.param == "method.reinforcement.grader"
    assert problem_of(asks, silent, accelerator="a100") is None
    assert problem_of(asks, replace(silent, is_alive=False)) is None
    assert problem_of(asks, CPU) is None, "it gets nodes of the better device alone"
    assert choose_nodes(PlacementBody(), (silent,)).problem is None


def test_a_training_has_slots_of_several_nodes_of_one_kind() -> None:
    """Their memory differs by some MB."""
    eight = replace(GPU, slots=8, memory_bytes=80 * GIB, fabric=True)
    nodes = [replace(eight, nodes=3), replace(eight, memory_bytes=80 * GIB - 10**7), GPU]
    assert choose_nodes(PlacementBody(), nodes).most_slots == 32
    apart = [replace(node, fabric=False) for node in nodes]
    assert choose_nodes(PlacementBody(), apart).most_slots == 8
    mixed = (replace(eight, accelerator="h100"), replace(eight, accelerator="a100"))
    assert choose_nodes(PlacementBody(), mixed).most_slots == 8, "GPUs of two models"
