"""Sweeps over HTTP: submitted once, shown with their jobs, refused as a whole, cancelled."""

from typing import Any

import httpx

from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready

SWEEPS = "/v1/sweeps"


def sweep(file_id: str, **changes: Any) -> dict[str, Any]:
    job = {"model": BASE.base_id, "training_file": file_id, "suffix": "faq", "lora": {"rank": 2}}
    return {"job": job, "parameters": {"lora.rank": [4, 8, 16]}, "at_once": 2, **changes}


async def test_a_sweep_is_shown_with_its_jobs(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    created = await client.post(SWEEPS, json=sweep(file_id))
    assert created.status_code == 200, created.text
    shown = created.json()
    assert (shown["status"], shown["method"], shown["rungs"]) == ("running", "grid", [])
    assert [trial["values"] for trial in shown["trials"]] == [
        {"rank": 4, "alpha": 8},
        {"rank": 8, "alpha": 16},
        {"rank": 16, "alpha": 32},
    ]
    jobs = [trial["jobs"][0] for trial in shown["trials"]]
    assert [job["status"] for job in jobs] == ["validating_files", "validating_files", None]
    first = (await client.get(f"/v1/fine_tuning/jobs/{jobs[0]['job_id']}")).json()
    assert first["hyperparameters"]["rank"] == 4
    second = (await client.get(f"/v1/fine_tuning/jobs/{jobs[1]['job_id']}")).json()
    assert (first["seed"], first["user_provided_suffix"]) == (second["seed"], "faq")
    listed = (await client.get(SWEEPS)).json()["data"]
    assert [item["id"] for item in listed] == [shown["id"]]
    assert (await client.get(f"{SWEEPS}/{shown['id']}")).json()["trials"] == shown["trials"]


async def test_the_next_job_follows_and_a_cancelled_sweep_ends(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    shown = (await client.post(SWEEPS, json=sweep(file_id, at_once=1))).json()
    url = f"{SWEEPS}/{shown['id']}"
    first, second, third = (trial["jobs"][0]["job_id"] for trial in shown["trials"])
    assert (await client.post(f"/v1/fine_tuning/jobs/{first}/cancel")).status_code == 200
    following = await api.until(
        client, url, lambda shown: shown["trials"][1]["jobs"][0]["status"] is not None
    )
    assert following["trials"][0]["jobs"][0]["status"] == "cancelled"
    ended = (await client.post(f"{url}/cancel")).json()
    assert (ended["status"], ended["best_job_id"]) == ("cancelled", None)
    assert (await client.post(f"{url}/cancel")).json() == ended
    assert (await client.get(f"/v1/fine_tuning/jobs/{second}")).json()["status"] == "cancelled"
    assert (await client.get(f"/v1/fine_tuning/jobs/{third}")).status_code == 404


async def test_one_idempotency_key_makes_one_sweep(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    headers = {"idempotency-key": "once"}
    first = await client.post(SWEEPS, json=sweep(file_id), headers=headers)
    second = await client.post(SWEEPS, json=sweep(file_id), headers=headers)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotent-replayed"] == "true"
    refused = sweep(file_id, budget={"max_amount_micro": 1})
    headers = {"idempotency-key": "poor"}
    assert (await client.post(SWEEPS, json=refused, headers=headers)).status_code == 400
    again = await client.post(SWEEPS, json=refused, headers=headers)
    assert again.json()["error"]["code"] == "budget_too_small"


async def refusal(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
    answer = await client.post(SWEEPS, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    return error["param"], error["message"]


async def test_a_sweep_with_a_wrong_configuration_is_refused_as_a_whole(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    wrong = sweep(file_id, parameters={"rank": [4, 4_000]})
    param, message = await refusal(client, wrong)
    assert (param, message[:15]) == ("training.rank", "With rank 4000:")
    param, message = await refusal(client, sweep(file_id, budget={"max_gpu_hours": 0.001}))
    assert param == "budget"
    assert "The budget of its sweep allows" in message
    without = sweep(file_id)
    without["job"]["eval"] = {"validation_fraction": 0}
    assert (await refusal(client, without))[0] == "job.eval.validation_fraction"
    fresh = await api.upload(client, b'{"prompt": "a", "completion": "b"}\n' * 20)
    assert (await refusal(client, sweep(fresh["id"])))[0] == "job.training_file"
    assert (await client.get(SWEEPS)).json()["data"] == []


async def test_the_sweeps_of_others_are_unknown(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    shown = (await client.post(SWEEPS, json=sweep(file_id))).json()
    other = await api.tenant()
    for answer in (
        await other.get(f"{SWEEPS}/{shown['id']}"),
        await other.post(f"{SWEEPS}/{shown['id']}/cancel"),
    ):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"


async def test_configurations_that_take_turns_have_one_job(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    created = await client.post(SWEEPS, json=sweep(file_id, colocate=2))
    assert created.status_code == 200, created.text
    shown = created.json()
    jobs = [trial["jobs"][0] for trial in shown["trials"]]
    assert shown["colocate"] == 2
    assert jobs[0]["job_id"] != jobs[1]["job_id"] == jobs[2]["job_id"]
    assert [job["configurations"] for job in jobs] == [1, 2, 2]
    assert (await client.get(f"{SWEEPS}/{shown['id']}")).json() == shown


async def test_configurations_that_cannot_take_turns_are_refused(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = sweep(file_id, colocate=3, parameters={"max_length": [128, 256]})
    param, message = await refusal(client, body)
    assert param == "parameters.max_length"
    assert "128, 256; try one sweep for each, or leave colocate out" in message
    assert (await refusal(client, sweep(file_id, colocate=9)))[0] == "colocate"
