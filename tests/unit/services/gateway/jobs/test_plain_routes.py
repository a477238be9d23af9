"""The plain routes: other names for the same jobs, with their own states."""

from typing import Any

import httpx
import pytest

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready


async def test_the_short_form_makes_the_job_that_openais_form_shows(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {
        "base_model": "tiny-llama",
        "dataset_uri": f"tunery://files/{file_id}",
        "params": {"rank": 8, "lr": 0.001, "epochs": 2},
        "metadata": {"team": "a"},
        "budget": {"max_gpu_hours": 100},
    }
    headers = {"idempotency-key": "k"}
    created = await client.post("/v1/jobs", json=body, headers=headers)
    assert created.status_code == 200, created.text
    job = created.json()
    assert job["state"] == "queued"
    assert job["base_model"] == "tiny-llama@sha256:" + "ab" * 32
    assert job["training_file_version"].startswith("sha256:")
    assert job["params"]["rank"] == 8
    assert job["params"]["learning_rate"] == 0.001
    assert job["params"]["epochs"] == 2
    same = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}")).json()
    assert same["training_file"] == file_id
    assert same["hyperparameters"]["n_epochs"] == 2
    assert same["metadata"] == {"team": "a"}
    again = await client.post("/v1/jobs", json=body, headers=headers)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == job["id"]


async def test_the_longer_form_is_listed_and_followed(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {
        "base_model": "tiny-llama",
        "training_file": file_id,
        "method": "lora",
        "hyperparameters": {"rank": 4},
        "eval_config": {"validation_fraction": 0.2},
    }
    job = (await client.post("/v1/fine-tuning/jobs", json=body)).json()
    for root in ("/v1/jobs", "/v1/fine-tuning/jobs"):
        listed = (await client.get(root)).json()
        assert [item["id"] for item in listed["data"]] == [job["id"]]
        shown = (await client.get(f"{root}/{job['id']}")).json()
        expected = shown["estimated_start"]  # other tests may have left a node
        assert expected is None or expected >= job["created_at"]
        assert (await client.get(f"{root}/{job['id']}/logs")).json()["data"] == []
    await client.post(f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    cancelled = (await client.get(f"/v1/jobs/{job['id']}")).json()
    assert cancelled["state"] == "cancelled"
    other = await api.tenant()
    for suffix in ("", "/logs"):
        assert (await other.get(f"/v1/jobs/{job['id']}{suffix}")).status_code == 404


async def refusal(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


async def test_errors_name_the_fields_of_the_plain_body(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    simple = {"base_model": "tiny-llama", "dataset_uri": file_id}
    wrong = await refusal(client, "/v1/jobs", {**simple, "params": {"rank": 0, "shine": 1}})
    assert wrong["param"] == "params.rank"
    assert "params.shine: unknown" in wrong["message"]
    missing = await client.post("/v1/jobs", json={**simple, "dataset_uri": "file-none"})
    assert missing.json()["error"]["param"] == "dataset_uri"
    elsewhere = await refusal(client, "/v1/jobs", {**simple, "dataset_uri": "s3://bucket/rows"})
    assert "POST /v1/uploads" in elsewhere["message"]
    unknown = await client.post("/v1/jobs", json={**simple, "base_model": "x"})
    assert unknown.json()["error"]["param"] == "base_model"


@pytest.mark.parametrize("method", ["dpo", "cpt", "ppo"])
async def test_an_unsupported_method_is_refused_with_the_supported_ones(
    api: ControlPlane, method: str
) -> None:
    client, file_id = await ready(api)
    body = {"base_model": "tiny-llama", "training_file": file_id, "method": method}
    wrong = await refusal(client, "/v1/fine-tuning/jobs", body)
    assert (wrong["param"], wrong["code"]) == ("method", "unsupported")
    assert "supported: lora, sft, qlora" in wrong["message"]


async def test_promotion_has_a_plain_route(api: ControlPlane) -> None:
    path = "/adapters/ft:a:b::c/promote"
    answer = await (await api.tenant()).post(path, json={"stage": "staging"})
    assert answer.status_code == 404
