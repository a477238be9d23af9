"""Sweeps run to their ends on the real stack, although processes are killed.

In one of them all configurations take turns in one job.
"""

import os
import signal
from typing import Any

import pytest

from tests.e2e.shared.guests import Guest
from tests.e2e.stories import replayed, training
from tests.e2e.test_confinement import AGENT, assert_billed_by_slots
from tunery.local import processes

pytestmark = pytest.mark.timeout(900)
SWEEP_S_MAX = 600


async def test_sweep_goes_on_after_a_kill_and_names_the_best(home: Guest) -> None:
    job = home.request(training={"max_steps": 4, "max_length": 256})
    sweep = await home.api.post(
        "/sweeps", {"job": job, "parameters": {"rank": [2, 4]}, "at_once": 1}
    )
    path = f"/sweeps/{sweep['id']}"
    assert [listed["id"] for listed in (await home.api.get("/sweeps"))["data"]] == [sweep["id"]]
    assert len(home.stack.kill("scheduler")) == 1
    await home.stack.await_ready("scheduler")
    ended = await home.api.until(path, lambda shown: shown["status"] == "completed", SWEEP_S_MAX)
    runs = [run for trial in ended["trials"] for run in trial["jobs"]]
    losses = {run["job_id"]: run["validation_loss"] for run in runs}
    assert len(losses) == 2, ended
    assert ended["best_job_id"] == min(losses, key=lambda job_id: losses[job_id])


RATES = [1e-6, 2e-3, 5e-4]


async def in_turns(home: Guest, **changes: Any) -> tuple[str, str]:
    """A sweep whose configurations take turns: its path, and its only job."""
    job = home.request(training={"max_length": 256, **changes})
    body = {"job": job, "parameters": {"learning_rate": RATES}, "colocate": 3}
    sweep = await home.api.post("/sweeps", body)
    (job_id,) = {run["job_id"] for trial in sweep["trials"] for run in trial["jobs"]}
    return f"/sweeps/{sweep['id']}", job_id


async def check_best(home: Guest, path: str, job_id: str) -> None:
    """Raises AssertionError unless the job has become that of its best configuration."""
    ended = await home.api.until(path, lambda shown: shown["status"] == "completed", SWEEP_S_MAX)
    losses = [trial["jobs"][0]["validation_loss"] for trial in ended["trials"]]
    assert len(losses) == len({*losses}) == len(RATES), ended
    best = losses.index(min(losses))
    named = [trial["jobs"][0]["fine_tuned_model"] for trial in ended["trials"]]
    job = await home.api.ended(job_id)
    assert named == [job["fine_tuned_model"] if n == best else None for n in range(len(RATES))]
    assert ended["best_job_id"] == job_id
    assert job["hyperparameters"]["learning_rate"] == RATES[best]
    assert [(own["values"], own["validation_loss"], own["chosen"]) for own in job["variants"]] == [
        ({"learning_rate": RATES[n]}, losses[n], n == best) for n in range(len(RATES))
    ]
    # each has a curve of its own, whose end is what it is compared by
    steps = (await home.api.get(f"/fine_tuning/jobs/{job_id}/metrics", limit=1000))["data"]
    last = {
        step["variant"]: step["valid_loss"]
        for step in sorted(steps, key=lambda step: step["step"])
        if step["valid_loss"] is not None
    }
    assert [round(last[number], 6) for number in range(len(RATES))] == losses
    # what evaluates it reads the same rows, with the adapter that was left
    assert abs(job["gate"]["adapter"]["loss"] - losses[best]) < 0.05


async def test_configurations_that_take_turns_have_one_lease_and_one_bill(
    home: Guest,
) -> None:
    path, job_id = await in_turns(home, max_steps=6)
    await check_best(home, path, job_id)
    job = await home.api.ended(job_id)
    assert job["attempt"] == 2, "one to train all, one to evaluate the best"
    bill = await home.bill(job_id)
    assert_billed_by_slots(home, job_id, bill, {1: 1, 2: 1})
    sweep = await home.api.get(path)
    assert sweep["amount_micro"] == bill["amount_micro"], "it counts once"
    assert job["trained_tokens"] == bill["trained_tokens"] > 0


@pytest.mark.soak  # test_colocated kills such a process, and the next test a sweep on a stack
async def test_configurations_that_take_turns_go_on_after_a_kill(home: Guest) -> None:
    path, job_id = await in_turns(home)
    newest = await home.with_checkpoint(job_id)
    assert newest["step_number"] > 0
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    for pid in processes.descendants(agent):  # the training, and a process that waits for the next
        os.kill(pid, signal.SIGKILL)
    resumed = await home.api.job(job_id, lambda job: job["attempt"] == 2 and training(job))
    assert resumed["progress"]["resumed_from_step"] >= newest["step_number"]
    await check_best(home, path, job_id)
    assert (await replayed(home.stack.folders.root))["equal"]
