"""Training step of the demo: its claims hold when all goes well, and fail with each fault."""

from typing import Any

import pytest

from tests.unit.tunery.cli.demo.test_context import context
from tunery.cli.demo.claims import CLAIMS_IN_PODS, TAKEN_OVER_BY_A_POD, DemoResult
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import DeadlineExceeded
from tunery.cli.demo.steps import training

ESTIMATE = {"steps": 20, "trained_tokens": 500}


def job(step: int, **changes: Any) -> dict[str, Any]:
    """Response of the API about a job on node a. step: of 20."""
    progress = {"step": step, "total_steps": 20, "train_loss": 2.0 - step / 20}
    progress |= {"resumed_from_step": changes.pop("resumed_from_step", None)}
    return {
        "status": "running",
        "phase": "running",
        "node": "a",
        "error": None,
        "queue": None,
        "progress": progress,
        "trained_tokens": 0,
    } | changes


def done(**changes: Any) -> dict[str, Any]:
    return job(20, phase="done", status="succeeded", trained_tokens=500) | changes


class Jobs:
    """API of one job: gives the answers one after the other, and then repeats the last one."""

    def __init__(self, *answers: dict[str, Any], checkpoint: int | None = 8) -> None:
        self.answers, self.checkpoint = list(answers), checkpoint

    async def job(self, _job_id: str) -> dict[str, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def checkpoints(self, _job_id: str) -> Any:
        if self.checkpoint is not None:
            yield {"step_number": self.checkpoint}


class Stack:
    """Stack that records which agents are killed. processes: how many each agent has."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.killed: list[str] = []

    def kill(self, name: str, *, tree: bool, restart: bool) -> list[int]:
        assert (tree, restart) == (True, False)
        self.killed.append(name)
        return list(range(self.processes))

    async def start(self, name: str) -> None:
        assert name in self.killed


def demo(api: Jobs, processes: int = 2) -> DemoContext:
    context_of_job = context(api)
    context_of_job.stack = Stack(processes)  # type: ignore[assignment]  # only these are called
    context_of_job.estimate = dict(ESTIMATE)
    return context_of_job


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "POLL_S", 0)


WAITING = job(0, phase="queued", progress=None, queue={"reason": "every slot is taken"})


async def test_the_agent_is_killed_half_way_with_steps_to_lose() -> None:
    context_of_job = demo(Jobs(WAITING, job(4), job(9), job(11)))
    await training.train_and_kill(context_of_job)
    assert context_of_job.stack.killed == ["agent-a"]  # type: ignore[attr-defined]  # of our stack
    assert (context_of_job.killed_node, context_of_job.last_checkpoint_step) == ("a", 8)
    assert context_of_job.result.figures["killed_at_step"] == 11
    assert context_of_job.result.held["waiting_was_explained"]
    assert context_of_job.result.held["agent_killed_about_half_way"]


@pytest.mark.parametrize(
    ("jobs", "processes", "claim"),
    [
        (Jobs(job(11)), 2, "waiting_was_explained"),
        (Jobs(WAITING, job(11)), 1, "agent_killed_about_half_way"),
        (Jobs(WAITING, job(16), checkpoint=12), 2, "agent_killed_about_half_way"),
    ],
    ids=["a wait without a reason", "no training to kill", "too late"],
)
async def test_a_claim_about_the_kill_fails(jobs: Jobs, processes: int, claim: str) -> None:
    context_of_job = demo(jobs, processes)
    await training.train_and_kill(context_of_job)
    assert not context_of_job.result.held[claim]


@pytest.mark.parametrize(("step", "checkpoint"), [(9, 8), (11, None), (11, 11), (13, 8)])
async def test_the_kill_waits_for_half_of_the_steps_and_shortly_after_a_checkpoint(
    step: int, checkpoint: int | None
) -> None:
    ends = job(20, status="failed", error={"message": "x"})
    context_of_job = demo(Jobs(job(step), ends, checkpoint=checkpoint))
    with pytest.raises(DeadlineExceeded, match="should be half-way by now: failed"):
        await training.train_and_kill(context_of_job)
    assert not context_of_job.killed_node


async def resumed(*answers: dict[str, Any]) -> DemoContext:
    """Run the step "resume" after node a was killed at step 11."""
    context_of_job = demo(Jobs(*answers))
    context_of_job.killed_node, context_of_job.last_checkpoint_step = "a", 8
    context_of_job.result.figures["killed_at_s"] = 0.0
    context_of_job.losses = {1: 1.9, 8: 1.5}
    await training.resume(context_of_job)
    return context_of_job


TAKEN_OVER = job(9, node="b", attempt=2, resumed_from_step=8)


async def test_the_other_node_resumes_from_the_last_checkpoint() -> None:
    context_of_job = await resumed(
        TAKEN_OVER, job(15, node="b", phase="evaluating"), done(node="b")
    )
    assert context_of_job.surviving_node == "b"
    assert {claim for claim, holds in context_of_job.result.held.items() if holds} == {
        "lease_expired_and_other_node_took_over",
        "resumed_from_last_checkpoint",
        "loss_fell",
        "trained_what_was_estimated",
    }
    assert context_of_job.result.figures["last_loss"] == 1.0


async def test_in_pods_the_agent_of_the_cluster_is_killed_and_another_pod_resumes() -> None:
    node = {"node": "cluster:laptop"}
    in_pods = demo(Jobs(WAITING, job(11, **node), job(12, **node)), processes=1)
    in_pods.in_pods, in_pods.result = True, DemoResult(dict.fromkeys(CLAIMS_IN_PODS, False))
    await training.train_and_kill(in_pods)
    assert in_pods.stack.killed == ["cluster"]  # type: ignore[attr-defined]  # of our stack
    assert in_pods.result.figures["killed_at_step"] == 12
    api: Any = Jobs(WAITING, job(9, attempt=2, resumed_from_step=8, **node), done(**node))
    in_pods.api = api
    await training.resume(in_pods)
    assert {TAKEN_OVER_BY_A_POD, "agent_killed_about_half_way"} <= {
        claim for claim, holds in in_pods.result.held.items() if holds
    }


@pytest.mark.parametrize(
    ("answers", "claim"),
    [
        (
            (job(9, node="b", attempt=2, resumed_from_step=0), done()),
            "resumed_from_last_checkpoint",
        ),
        ((TAKEN_OVER, done(trained_tokens=900, progress=job(9)["progress"])), "loss_fell"),
        (
            (TAKEN_OVER, done(progress=job(20)["progress"] | {"total_steps": 25})),
            "trained_what_was_estimated",
        ),
    ],
    ids=["from the beginning", "the loss stays", "other steps than estimated"],
)
async def test_a_claim_about_the_resumption_fails(
    answers: tuple[dict[str, Any], ...], claim: str
) -> None:
    context_of_job = await resumed(*answers)
    assert not context_of_job.result.held[claim]


async def test_a_job_that_ends_otherwise_is_named() -> None:
    with pytest.raises(DeadlineExceeded, match="the job ended as failed"):
        await resumed(TAKEN_OVER, done(status="failed", error={"code": "diverged"}))
