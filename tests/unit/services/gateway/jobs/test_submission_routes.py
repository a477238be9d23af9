"""Estimates and submissions over HTTP."""

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_the_estimate_records_nothing(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    answer = await client.post("/v1/fine_tuning/jobs/estimate", json=body)
    matching = answer.json()
    assert matching["estimation_available"] is True
    assert matching["trained_tokens"] >= 20_000
    assert matching["amount_max_micro"] >= matching["amount_micro"] > 0
    assert matching["hyperparameters"]["n_epochs"] >= 1
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []
    fresh = await api.upload(client)
    early = await client.post(
        "/v1/fine_tuning/jobs/estimate", json={**body, "training_file": fresh["id"]}
    )
    assert early.json()["estimation_available"] is False
    assert early.json()["unavailable_reason"] == "train_file_not_validated"


async def test_a_dry_run_is_the_estimate_and_makes_no_job(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    dry = (await submit(client, file_id, dry_run=True)).json()
    assert dry["object"] == "fine_tuning.job.estimate"
    assert dry["allowed_to_proceed"] is True
    body = {"model": "tiny-llama", "training_file": file_id, "budget": {"max_amount_micro": 1}}
    poor = (await client.post("/v1/fine_tuning/jobs/estimate", json=body)).json()
    assert poor["allowed_to_proceed"] is False
    assert "Raise the budget" in poor["refusal"]
    refused = await client.post("/v1/fine_tuning/jobs", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "budget_too_small"
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []
