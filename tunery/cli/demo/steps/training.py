"""The machines: two agents, a kill at half, and the other one going on where it stopped."""

import asyncio
import time
from typing import Final

from tunery.cli.demo.context import Scene
from tunery.cli.demo.polling import POLL_S, Late, until
from tunery.client.shapes import Job
from tunery.local.stack import ServiceSpec

NODES: Final = ("a", "b")
TRAINING_S_MAX: Final = 600
TAKEOVER_S_MAX: Final = 180
END_S_MAX: Final = 900
PHASES: Final = {
    "evaluating": "evaluating: base and adapter on the same items",
    "registering": "registering the version",
}


async def agents(scene: Scene) -> None:
    """Two nodes of the demo's own. A comes first, so the first lease is A's."""
    specs = [
        ServiceSpec(f"agent-{node}", module="services.trainer", env={"TUNERY_NODE_ID": node})
        for node in NODES
    ]
    for spec in specs:
        await scene.stack.add(spec)
    ready = await scene.api.ready()
    scene.told.figures["ready_seconds"] = round(scene.view.seconds, 1)
    holds = ready
    text = f"ready after {scene.view.seconds:.0f} s, with two node agents, A and B, on this machine"
    scene.check("servers_and_services_ready", holds, text)


async def train_and_kill(scene: Scene) -> None:
    scene.view.chapter("Queue, lease, training")
    waits: set[str] = set()
    deadline = time.monotonic() + TRAINING_S_MAX
    while True:
        job = await _look(scene)
        queue = job["queue"]
        if queue and queue["reason"] and queue["reason"] not in waits:
            waits.add(queue["reason"])
            scene.view.line(f"waiting: {queue['reason']}")
        if job["status"] in ("failed", "cancelled", "succeeded") or time.monotonic() > deadline:
            raise Late(f"the job was to be half-way by now: {job['status']}, {job['error']}")
        if await _worth_killing(scene, job):
            break
        await asyncio.sleep(POLL_S)
    scene.check("waiting_was_explained", bool(waits), "every wait had a reason that was told")
    await _kill(scene, job)


async def resume(scene: Scene) -> None:
    scene.view.chapter("The other machine goes on")
    job = await until(
        lambda: scene.api.job(scene.job_id),
        lambda found: found["attempt"] == 2 and found["phase"] == "running",
        TAKEOVER_S_MAX,
    )
    scene.survivor = job["node"] or ""
    taken = round(time.monotonic() - float(scene.told.figures["killed_at_s"]), 1)
    scene.told.figures["takeover_seconds"] = taken
    scene.told.figures.pop("killed_at_s")
    scene.check(
        "lease_expired_and_other_node_took_over",
        scene.survivor not in (scene.killed, ""),
        f"its heartbeats stopped, its lease ended; node {scene.survivor.upper()} runs "
        f"{taken:.0f} s after the kill",
    )
    loaded = (job["progress"] or {})["resumed_from_step"]
    text = f"resumed from step {loaded}, the last accepted checkpoint: nothing before it runs again"
    scene.check("resumed_from_last_checkpoint", loaded == scene.last_checkpoint > 0, text)
    await _until_done(scene)


async def _look(scene: Scene) -> Job:
    """The job as it is now; draws the loss line."""
    job = await scene.api.job(scene.job_id)
    progress = job["progress"]
    if progress and progress["train_loss"] is not None:
        here = progress["step"]
        scene.losses[here] = progress["train_loss"]
        curve = [scene.losses[step] for step in sorted(scene.losses) if step <= here]
        scene.view.training(f"node {(job['node'] or '?').upper()}", progress, curve)
    return job


async def _worth_killing(scene: Scene, job: Job) -> bool:
    """About half-way, with a checkpoint, and some steps after it to lose."""
    progress = job["progress"]
    if job["phase"] != "running" or not progress or 2 * progress["step"] < progress["total_steps"]:
        return False
    checkpoints = [one async for one in scene.api.checkpoints(scene.job_id)]
    if not checkpoints:
        return False
    scene.last_checkpoint = checkpoints[0]["step_number"]
    return bool(progress["step"] > scene.last_checkpoint)


async def _kill(scene: Scene, job: Job) -> None:
    scene.killed = job["node"] or ""
    pids = scene.stack.kill(f"agent-{scene.killed}", tree=True, restart=False)
    scene.told.figures["killed_at_s"] = time.monotonic()
    progress = job["progress"] or {}
    step, total = progress["step"], progress["total_steps"]
    scene.told.figures |= {"killed_at_step": step, "total_steps": total}
    text = (
        f"kill -9: agent {scene.killed.upper()} and its training, {len(pids)} processes, at step "
        f"{step} of {total}; the last checkpoint is of step {scene.last_checkpoint}"
    )
    scene.check("agent_killed_about_half_way", len(pids) >= 2 and 4 * step <= 3 * total, text)


async def _until_done(scene: Scene) -> None:
    shown = ""
    deadline = time.monotonic() + END_S_MAX
    while True:
        job = await _look(scene)
        if job["phase"] != shown and job["phase"] in PHASES:
            shown = job["phase"]
            scene.view.line(PHASES[shown])
        if job["phase"] == "done":
            break
        if time.monotonic() > deadline:
            raise Late(f"the job is not done after {END_S_MAX} s: {job['phase']}, {job['queue']}")
        await asyncio.sleep(POLL_S)
    scene.job = {**job}
    curve = [scene.losses[step] for step in sorted(scene.losses)]
    fell = len(curve) > 2 and curve[-1] < 0.8 * curve[0]
    if curve:
        scene.told.figures |= {"first_loss": curve[0], "last_loss": curve[-1]}
    scene.check("loss_fell", fell, f"loss {curve[0]:.2f} → {curve[-1]:.2f}" if curve else "no loss")
    _compare(scene)
    if job["status"] != "succeeded":
        raise Late(f"the job ended as {job['status']}: {job['error']}")


def _compare(scene: Scene) -> None:
    """Equal up to 20,000 rows of training data; beyond, the estimate goes by the first of them."""
    expected, tokens = scene.estimate, scene.job["trained_tokens"] or 0
    steps = (scene.job["progress"] or {}).get("total_steps") or 0
    exact = (steps, tokens) == (expected["steps"], expected["trained_tokens"])
    holds = exact or abs(steps - expected["steps"]) * 100 <= steps
    text = f"{steps} steps and {tokens} tokens were trained{', as estimated' if exact else ''}"
    scene.check("trained_what_was_estimated", holds, text)
