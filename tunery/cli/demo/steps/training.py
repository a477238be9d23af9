"""Training on two node agents: one is killed half-way, the other one resumes the job.

In pods of a cluster its agent is killed, and the next one has another pod resume the job.
"""

import asyncio
import time
from typing import Final

from tunery.cli.demo.claims import TAKEN_OVER, TAKEN_OVER_BY_A_POD
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import POLL_S, DeadlineExceeded, poll_until
from tunery.client.shapes import JobObject
from tunery.local.kubernetes import laptop
from tunery.local.stack import WARM_NODE, ServiceSpec

GATE_QUESTIONS: Final = "200"  # of the move: the fewest with which the gate decides
NODES: Final = ("a", "b")
TRAINING_S_MAX: Final = 600
TAKEOVER_S_MAX: Final = 180
END_S_MAX: Final = 900
PHASES: Final = {
    "evaluating": "evaluating: base and adapter on the same items",
    "registering": "registering the new version",
}


async def start_agents(context: DemoContext, *, to_lose_one: bool = True) -> None:
    """Start two node agents, A first, so that the first lease is A's; a cluster has its own agent.

    to_lose_one: False: A alone, which loads its libraries before the first lease as `tunery up` has
        it
    """
    warm = {} if to_lose_one else WARM_NODE | {"TUNERY_NODE_GATE_QUESTIONS": GATE_QUESTIONS}
    nodes = NODES if to_lose_one else NODES[:1]
    specs = [
        ServiceSpec(f"agent-{node}", module="services.trainer", env={"TUNERY_NODE_ID": node} | warm)
        for node in nodes
    ]
    for spec in () if context.in_pods else specs:
        await context.stack.add(spec)
    ready = await context.api.ready()
    seconds = context.display.seconds
    context.result.figures["ready_seconds"] = round(seconds, 1)
    agents = "two node agents, A and B," if to_lose_one else "a node agent"
    if context.in_pods:
        agents = "a cluster of Kubernetes"
    text = f"ready after {seconds:.0f} s, with {agents} on this machine"
    context.check("servers_and_services_ready", ready, text)


async def train_and_kill(context: DemoContext) -> None:
    """Follow the job to its middle, then kill its agent.

    Raises DeadlineExceeded when the job ends or takes too long before that.
    """
    context.display.step("Queue, lease, training")
    waits: set[str] = set()
    deadline = time.monotonic() + TRAINING_S_MAX
    while True:
        job = await _fetch_job(context)
        queue = job["queue"]
        if queue and queue["reason"] and queue["reason"] not in waits:
            waits.add(queue["reason"])
            context.display.line(f"waiting: {queue['reason']}")
        if job["status"] in ("failed", "cancelled", "succeeded") or time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"the job should be half-way by now: {job['status']}, {job['error']}"
            )
        if await _is_time_to_kill(context, job):
            break
        await asyncio.sleep(POLL_S)
    context.check(
        "waiting_was_explained", bool(waits), "every wait had a reason, and the API gave it"
    )
    await _kill(context, job)


async def resume(context: DemoContext) -> None:
    """Wait until the other node has taken over and the job is done."""
    pods = "The next agent has another pod resume the job"
    context.display.step(pods if context.in_pods else "The other machine resumes the job")
    if context.in_pods:
        await poll_until(
            lambda: context.api.job(context.job_id),
            lambda job: job["phase"] != "running",
            TAKEOVER_S_MAX,
        )
        await context.stack.start(laptop.AGENT)
    job = await poll_until(
        lambda: context.api.job(context.job_id),
        lambda job: job["attempt"] == 2 and job["phase"] == "running",
        TAKEOVER_S_MAX,
    )
    context.surviving_node = job["node"] or ""
    takeover_s = round(time.monotonic() - float(context.result.figures["killed_at_s"]), 1)
    context.result.figures["takeover_seconds"] = takeover_s
    context.result.figures.pop("killed_at_s")
    if context.in_pods:
        context.check(
            TAKEN_OVER_BY_A_POD,
            context.surviving_node == context.killed_node,
            "heartbeats stopped, the lease expired, and the agent's next start deleted the pod; "
            f"another one runs {takeover_s:.0f} s after the kill",
        )
    else:
        context.check(
            TAKEN_OVER,
            context.surviving_node not in (context.killed_node, ""),
            f"heartbeats stopped, the lease expired; node {context.surviving_node.upper()} runs "
            f"{takeover_s:.0f} s after the kill",
        )
    loaded = (job["progress"] or {})["resumed_from_step"]
    text = (
        f"resumed from step {loaded}, the last accepted checkpoint: no step before it is repeated"
    )
    context.check("resumed_from_last_checkpoint", loaded == context.last_checkpoint_step > 0, text)
    await _until_done(context)


async def _fetch_job(context: DemoContext) -> JobObject:
    """Fetch the job and draw its loss line."""
    job = await context.api.job(context.job_id)
    progress = job["progress"]
    if progress and progress["train_loss"] is not None:
        here = progress["step"]
        context.losses[here] = progress["train_loss"]
        curve = [context.losses[step] for step in sorted(context.losses) if step <= here]
        context.display.training(f"node {(job['node'] or '?').upper()}", progress, curve)
    return job


async def _is_time_to_kill(context: DemoContext, job: JobObject) -> bool:
    """About half-way, with a checkpoint, and some steps after it to lose."""
    progress = job["progress"]
    if job["phase"] != "running" or not progress or 2 * progress["step"] < progress["total_steps"]:
        return False
    checkpoints = [item async for item in context.api.checkpoints(context.job_id)]
    if not checkpoints:
        return False
    context.last_checkpoint_step = last = checkpoints[0]["step_number"]
    # The next checkpoint must not come between this look and the kill.
    most = max(1, last // len(checkpoints) // 2)
    # A pod is proven to live a second later than a training on a node.
    fewest = most if context.in_pods else 1
    return bool(fewest <= progress["step"] - last <= most)


async def _kill(context: DemoContext, job: JobObject) -> None:
    context.killed_node = job["node"] or ""
    agent = laptop.AGENT if context.in_pods else f"agent-{context.killed_node}"
    pids = context.stack.kill(agent, tree=True, restart=False)
    context.result.figures["killed_at_s"] = time.monotonic()
    progress = job["progress"] or {}
    step, total = progress["step"], progress["total_steps"]
    context.result.figures |= {"killed_at_step": step, "total_steps": total}
    killed = f"agent {context.killed_node.upper()} and its training ({len(pids)} processes)"
    if context.in_pods:
        killed = "the agent of the cluster"
    text = (
        f"kill -9 of {killed} at step {step} of {total}; the last checkpoint is from step "
        f"{context.last_checkpoint_step}"
    )
    is_killed = len(pids) >= (1 if context.in_pods else 2)
    context.check("agent_killed_about_half_way", is_killed and 4 * step <= 3 * total, text)


async def _until_done(context: DemoContext) -> None:
    shown = ""
    deadline = time.monotonic() + END_S_MAX
    while True:
        job = await _fetch_job(context)
        if job["phase"] != shown and job["phase"] in PHASES:
            shown = job["phase"]
            context.display.line(PHASES[shown])
        if job["phase"] == "done":
            break
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"the job is not done after {END_S_MAX} s: {job['phase']}, {job['queue']}"
            )
        await asyncio.sleep(POLL_S)
    context.job = {**job}
    curve = [context.losses[step] for step in sorted(context.losses)]
    fell = len(curve) > 2 and curve[-1] < 0.8 * curve[0]
    if curve:
        context.result.figures |= {"first_loss": curve[0], "last_loss": curve[-1]}
    context.check(
        "loss_fell", fell, f"loss {curve[0]:.2f} → {curve[-1]:.2f}" if curve else "no loss"
    )
    # equal up to 20,000 rows of training data; beyond, the estimate goes by the first of them
    expected, tokens = context.estimate, context.job["trained_tokens"] or 0
    steps = (context.job["progress"] or {}).get("total_steps") or 0
    exact = (steps, tokens) == (expected["steps"], expected["trained_tokens"])
    holds = exact or abs(steps - expected["steps"]) * 100 <= steps
    text = f"{steps} steps and {tokens} tokens trained{', exactly as estimated' if exact else ''}"
    context.check("trained_what_was_estimated", holds, text)
    if job["status"] != "succeeded":
        raise DeadlineExceeded(f"the job ended as {job['status']}: {job['error']}")
