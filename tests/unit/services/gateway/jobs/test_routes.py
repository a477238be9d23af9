"""Jobs over HTTP: submitted once, shown truthfully, changed, followed."""

from base64 import b64decode
from typing import Any

import httpx
import pytest

from schemas.reasons import Failure, rejecting
from schemas.telemetry import Step
from services.gateway.views.tables.jobs import JOBS
from tests.log_lines import logged
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.tunery.runtime.hosts.toy_service import until


async def ready(api: ControlPlane) -> tuple[httpx.AsyncClient, str]:
    client = await api.tenant()
    file = await api.upload(client)
    await api.validated(client, file["id"])
    return client, file["id"]


async def submit(client: httpx.AsyncClient, file_id: str, **body: Any) -> httpx.Response:
    headers = body.pop("headers", {})
    return await client.post(
        "/v1/fine_tuning/jobs",
        json={"model": "tiny-llama", "training_file": file_id, **body},
        headers=headers,
    )


async def test_a_job_is_accepted_with_its_hold(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    answer = await submit(
        client, file_id, suffix="My Style", seed=7, metadata={"team": "a"}, lora={"rank": 8}
    )
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["object"] == "fine_tuning.job"
    assert job["model"] == "tiny-llama"
    assert job["training_file"] == file_id
    assert job["seed"] == 7
    assert job["metadata"] == {"team": "a"}
    assert job["user_provided_suffix"] == "My Style"
    assert job["fine_tuned_model"] is None
    assert job["error"] is None
    assert job["status"] in ("validating_files", "queued")
    assert job["hyperparameters"]["n_epochs"] == "auto"
    assert job["hyperparameters"]["rank"] == 8
    assert job["cost"]["hold_gpu_ms"] > 0
    assert job["cost"]["amount_max_micro"] >= job["cost"]["estimated_amount_micro"]
    assert job["provenance"]["base_model"].startswith("tiny-llama@sha256:abab")
    assert (await client.get(f"/v1/fine_tuning/jobs/{job['id']}")).json()["id"] == job["id"]


async def test_a_job_may_wait_for_its_files_validation(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    job = (await submit(client, file["id"])).json()
    assert job["status"] == "validating_files"
    assert job["cost"]["hold_gpu_ms"] is None
    assert "validated" in job["queue"]["reason"]
    await api.validated(client, file["id"])
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    held = await api.until(client, path, lambda matching: matching["cost"]["hold_gpu_ms"])
    assert held["cost"]["estimated_amount_micro"] > 0


async def test_first_hour_14_all_problems_of_a_request_are_in_one_message(
    api: ControlPlane,
) -> None:
    """A suffix of 65 hid all others, and of a model and a file that are unknown one was named."""
    client, file_id = await ready(api)
    hyper = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 0}}}
    wrong = {"suffix": "s" * 65, "lora": {"rank": -1}, "method": hyper, "seed": "x"}
    error = (await submit(client, file_id, **wrong)).json()["error"]
    assert error["message"].startswith("4 problems: suffix: must have at most 64 characters; ")
    for param in ("seed", "lora.rank", "method.supervised.hyperparameters.n_epochs"):
        assert f"{param}: must be " in error["message"]
    assert error["param"] == "suffix"
    answer = await submit(
        client, "file-none", model="none", validation_file="file-gone", lora={"alpha": 0, "q": 1}
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "model")
    for param in ("model", "training_file", "validation_file", "lora.alpha", "lora.q"):
        assert f"{param}: " in error["message"]  # ranges are told of an unknown model too


async def test_all_problems_are_reported_and_param_names_the_first(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    answer = await submit(
        client,
        file_id,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 99}}},
        lora={"rank": 0, "colour": 1},
        training={"slots": 0, "validation_fraction": 2},
    )
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["message"].startswith("5 problems: ")
    assert "n_epochs: must be a whole number from 1 to 50" in error["message"]
    for param in ("lora.rank", "lora.colour", "training.slots", "training.validation_fraction"):
        assert f"{param}: " in error["message"]


async def test_invalid_bodies_answer_400_with_param(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"model": "tiny-llama"}, "training_file"),
        ({"model": 3, "training_file": file_id}, "model"),
        ({"model": "tiny-llama", "training_file": file_id, "seed": -1}, "seed"),
        ({"model": "tiny-llama", "training_file": file_id, "suffix": "x" * 65}, "suffix"),
        ({"model": "tiny-llama", "training_file": file_id, "metadta": {}}, "metadta"),
        (
            {"model": "tiny-llama", "training_file": file_id, "metadata": {"k": "v" * 513}},
            "metadata.k",
        ),
        (
            {"model": "tiny-llama", "training_file": file_id, "method": {"type": "ppo"}},
            "method.type",
        ),
    ]
    for body, param in cases:
        answer = await client.post("/v1/fine_tuning/jobs", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["param"] == param
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    headers = {"content-type": "application/json"}
    broken = await client.post("/v1/fine_tuning/jobs", content=b"{", headers=headers)
    assert broken.json()["error"]["message"] == "The body is not valid JSON."


async def test_unknown_models_and_files_are_404(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    other, foreign = await ready(api)
    unknown = await submit(client, file_id, model="gpt-9")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    for name in ("file-nothing", foreign):
        answer = await submit(client, name)
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "training_file"
        assert answer.json()["error"]["message"] == f"No such File object: {name}"
    assert (await other.get(f"/v1/files/{foreign}")).status_code == 200


async def test_a_rejected_file_cannot_be_trained_on(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    await api.validated(client, file["id"], accepted=False)
    answer = await submit(client, file["id"])
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_training_file"
    assert "/validation" in answer.json()["error"]["message"]


FEW = "Training file has 7 example(s), but must have at least 10 examples."


async def test_too_few_examples_have_openai_s_code_before_and_after_the_check(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    file_id = (await api.upload(client))["id"]
    early = (await submit(client, file_id)).json()
    reason = rejecting("rows_too_few", rows=7, limit=10, file_id=file_id)
    few = Failure(code="invalid_n_examples", reason=reason)
    await api.validated(client, file_id, accepted=False, failure=few)
    path = f"/v1/fine_tuning/jobs/{early['id']}"
    job = await api.until(client, path, lambda matching: matching["status"] == "failed")
    assert job["error"]["code"] == "invalid_n_examples"
    assert job["error"]["param"] == "training_file"
    assert FEW in job["error"]["message"]
    late = (await submit(client, file_id)).json()["error"]
    assert (late["code"], late["param"]) == ("invalid_n_examples", "training_file")
    assert FEW in late["message"]
    shown = (await client.get(f"/v1/files/{file_id}/validation")).json()
    assert (shown["code"], shown["message"]) == ("invalid_n_examples", FEW)


async def test_a_chat_cannot_be_split(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    answer = await submit(client, file_id, training={"length_policy": "split"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "training.length_policy")
    assert "only plain text can be split" in error["message"]


async def test_pause_resume_and_cancel(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    paused = await client.post(f"{path}/pause")
    assert paused.json()["status"] == "paused"
    resumed = await client.post(f"{path}/resume")
    assert resumed.json()["status"] in ("validating_files", "queued")
    cancelled = await client.post(
        f"{path}/cancel", headers={"content-type": "application/json"}, content=b""
    )
    assert cancelled.json()["status"] == "cancelled"
    done = await api.until(client, path, lambda matching: matching["finished_at"] is not None)
    assert done["status"] == "cancelled"
    assert done["cost"]["hold_gpu_ms"] is None
    again = await client.post(f"{path}/cancel")  # first_hour_low: 200 as before the end, not 409
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")
    late = await client.post(f"{path}/resume")
    assert late.status_code == 409
    assert late.headers["x-should-retry"] == "false"


async def test_a_limit_is_a_429_that_is_not_retried(api: ControlPlane) -> None:
    client = await api.tenant(plan="free")
    file = await api.upload(client)
    await api.validated(client, file["id"])
    assert (await submit(client, file["id"])).status_code == 200
    second = await submit(client, file["id"])
    assert second.status_code == 429
    assert second.json()["error"]["code"] == "concurrency_limit_exceeded"
    assert second.headers["x-should-retry"] == "false"


async def test_events_have_openais_order_and_pages(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    tenant = client.headers["x-tenant"]
    for step in (1, 2, 3):
        await api.telemetry(tenant, job["id"], a_step(tenant, job["id"], step))
    events = await api.until(
        client,
        f"{path}/events?limit=100",
        lambda matching: sum(item["type"] == "metrics" for item in matching["data"]) == 3,
    )
    oldest_first = [item["message"] for item in reversed(events["data"])]
    assert oldest_first[:2] == [
        f"Created fine-tuning job: {job['id']}",
        f"Validating training file: {file_id}",
    ]
    assert "are held for this job" in oldest_first[2]
    assert oldest_first[-1] == "Step 3/9: training loss=1.50"
    assert events["data"][0]["data"]["train_loss"] == 1.5
    seen: list[str] = []
    page: dict[str, Any] = {"has_more": True, "last_id": None}
    while page["has_more"]:
        params = {"limit": 2} | ({"after": page["last_id"]} if page["last_id"] else {})
        page = (await client.get(f"{path}/events", params=params)).json()
        seen += [item["id"] for item in page["data"]]
    assert seen == [item["id"] for item in events["data"]]


async def test_a_loss_that_is_not_finite_is_null_in_json(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    tenant = client.headers["x-tenant"]
    await api.telemetry(tenant, job["id"], a_step(tenant, job["id"], 1, loss=float("nan")))
    events = await api.until(
        client,
        f"/v1/fine_tuning/jobs/{job['id']}/events",
        lambda matching: matching["data"][0]["type"] == "metrics",
    )
    assert events["data"][0]["data"]["train_loss"] is None


async def test_an_ended_job_has_its_metrics_as_a_result_file(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    tenant, path = client.headers["x-tenant"], f"/v1/fine_tuning/jobs/{job['id']}"
    for step in (1, 2):
        await api.telemetry(tenant, job["id"], a_step(tenant, job["id"], step))
    await api.until(client, f"{path}/events", lambda matching: "Step 2/9" in str(matching))
    await client.post(f"{path}/cancel")
    done = await api.until(client, path, lambda matching: matching["result_files"])
    (result,) = done["result_files"]
    file = (await client.get(f"/v1/files/{result}")).json()
    assert (file["purpose"], file["status"]) == ("fine-tune-results", "processed")
    assert file["filename"] == "step_metrics.csv"
    headers = {"accept": "application/binary"}
    content = await client.get(f"/v1/files/{result}/content", headers=headers)
    header, *lines = content.text.splitlines()
    assert header.startswith("step,train_loss,train_accuracy,valid_loss,")
    assert [line.partition(",")[0] for line in lines] == ["1", "2"]
    encoded = await client.get(f"/v1/files/{result}/content?encoding=base64")
    assert b64decode(encoded.content, validate=True) == content.content
    monkeypatch.setattr(api.deps.settings, "result_files", "base64")
    usual = await client.get(f"/v1/files/{result}/content")
    assert (usual.content, usual.headers["content-length"]) == (
        encoded.content,
        str(len(encoded.content)),
    )
    plain = await client.get(f"/v1/files/{result}/content?encoding=plain")
    assert plain.content == content.content
    rows = await client.get(f"/v1/files/{file_id}/content")
    assert rows.content.startswith(b"{"), "training files come as they were uploaded"
    listed = await client.get("/v1/files", params={"purpose": "fine-tune-results"})
    assert [item["id"] for item in listed.json()["data"]] == [result]
    refused = await submit(client, result)
    assert refused.json()["error"]["param"] == "training_file"


async def test_lists_are_newest_first_and_filtered_by_metadata(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    first = (await submit(client, file_id, metadata={"team": "a", "n": "1"})).json()
    second = (await submit(client, file_id, metadata={"team": "a", "n": "2"})).json()
    third = (await submit(client, file_id)).json()
    listed = (await client.get("/v1/fine_tuning/jobs")).json()
    assert [item["id"] for item in listed["data"]] == [third["id"], second["id"], first["id"]]

    async def matching(params: dict[str, str]) -> list[str]:
        answer = await client.get("/v1/fine_tuning/jobs", params=params)
        return [item["id"] for item in answer.json()["data"]]

    assert await matching({"metadata[team]": "a"}) == [second["id"], first["id"]]
    assert await matching({"metadata[team]": "a", "metadata[n]": "1"}) == [first["id"]]
    assert await matching({"metadata": "null"}) == [third["id"]]
    refused = await client.get("/v1/fine_tuning/jobs", params={"metadata": "team"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata")
    page = await client.get("/v1/fine_tuning/jobs", params={"metadata[team]": "a", "limit": 1})
    assert page.json()["has_more"] is True


async def test_another_tenants_job_does_not_exist(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    other = await api.tenant()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    for suffix in ("", "/events", "/checkpoints", "/cost"):
        assert (await other.get(path + suffix)).status_code == 404
    for action in ("cancel", "pause", "resume"):
        assert (await other.post(f"{path}/{action}")).status_code == 404
    assert (await client.get(path)).json()["status"] != "cancelled"


async def test_costs_and_checkpoints_begin_empty(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id)).json()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    cost = (await client.get(f"{path}/cost")).json()
    assert (cost["lines"], cost["amount_micro"], cost["final"]) == ([], 0, False)
    assert (await client.get(f"{path}/checkpoints")).json()["data"] == []


def a_step(tenant: str, job_id: str, step: int, loss: float = 1.5) -> Step:
    return Step(
        tenant=tenant,
        job_id=job_id,
        attempt=1,
        step=step,
        total_steps=9,
        loss=loss,
        accuracy=0.5,
        grad_norm=1.0,
        learning_rate=1e-4,
        tokens=100 * step,
        elapsed_ms=1_000 * step,
    )


async def test_a_job_is_shown_as_it_was(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job = (await submit(client, file_id, metadata={"team": "a"})).json()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    now = (await client.get(path, params={"at": job["created_at"] + 60})).json()
    current = (await client.get(path)).json()
    # its position is computed from the queue as it is, and the queue of that moment is not kept
    assert (now.pop("queue")["code"], now.items() <= current.items()) == (
        current["queue"]["code"],
        True,
    )
    before = await client.get(path, params={"at": job["created_at"] - 60})
    assert before.status_code == 404
    assert before.json()["error"]["param"] == "at"


async def test_first_hour_s12_an_alias_trains_its_base(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    path = "/v1/bases/tiny-llama/aliases"
    assert (await submit(client, file_id, model="gpt-4o-mini-2024-07-18")).status_code == 404
    await api.api.post(path, json={"aliases": ["gpt-4o-mini-2024-07-18"]})
    job = (await submit(client, file_id, model="gpt-4o-mini-2024-07-18")).json()
    await api.api.post(path, json={"aliases": []})
    assert (job["model"], job["provenance"]["base_model"].split("@")[0]) == (
        "tiny-llama",
        "tiny-llama",
    )


WANDB = {"type": "wandb", "wandb": {"project": "lamps", "tags": ["a"]}}


async def test_first_hour_s08_integrations_are_shown_and_a_missing_package_is_a_warning(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "no_such_package")
    client, file_id = await ready(api)
    job = (await submit(client, file_id, integrations=[WANDB, {"type": "tensorboard"}])).json()
    assert job["integrations"] == [WANDB, {"type": "tensorboard"}]
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    events = (await client.get(f"{path}/events", params={"limit": 100})).json()["data"]
    (warned,) = [event for event in events if event["level"] == "warn"]
    assert warned["message"].startswith("Ignored: integrations.wandb. W&B's package is not")
    recipe = (await client.get(f"{path}/recipe")).json()["recipe"]
    assert recipe["integrations"] == job["integrations"]


async def test_a_job_for_mlflow_needs_a_server_of_its_tenant(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    asked = {"type": "mlflow", "mlflow": {"experiment": "lamps"}}
    refused = await submit(client, file_id, integrations=[asked])
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "integrations"
    assert "`tunery mlflow set URL`" in error["message"]
    server = {"url": "https://mlflow.example.com/", "token": "t0ken"}
    assert (await client.put("/v1/integrations/mlflow", json=server)).status_code == 200
    job = (await submit(client, file_id, integrations=[asked])).json()
    assert job["integrations"] == [asked]


async def test_first_hour_05_operators_list_the_jobs_of_a_tenant(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id, suffix="demo")).json()["id"]
    tenant, path = client.headers["x-tenant"], "/v1/fine_tuning/jobs"
    listed = (await api.api.get(path, params={"tenant": tenant})).json()["data"]
    assert [job["id"] for job in listed] == [job_id]
    assert (await api.api.get(path, params={"tenant": "nobody"})).status_code == 404
    stranger = await api.tenant()
    assert (await stranger.get(path, params={"tenant": tenant})).status_code == 403


async def test_first_hour_23_a_job_has_prompts_of_its_own(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    prompts = ["Who keeps the lamp?", "Was ist ein Leuchtturm? €"]
    job = (await submit(client, file_id, eval={"prompts": prompts})).json()
    assert job["eval"]["prompts"] == prompts
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert recipe["eval"]["prompts"] == prompts
    assert (await submit(client, file_id, seed=1)).json()["eval"]["prompts"] is None
    body = {"model": "tiny-llama", "training_file": file_id}
    plain = (await client.post("/v1/fine_tuning/jobs/estimate", json=body)).json()
    more = await client.post(
        "/v1/fine_tuning/jobs/estimate", json={**body, "eval": {"prompts": prompts}}
    )
    assert more.json()["eval_gpu_ms"] >= plain["eval_gpu_ms"]


async def test_a_job_has_measures_of_its_own_which_stay_sealed(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    measures = ["token_f1", {"type": "regex", "pattern": "^lantern"}]
    asked = {"measures": measures, "measured_rows": 40}
    job = (await submit(client, file_id, eval=asked)).json()
    assert (job["eval"]["measures"], job["eval"]["measured_rows"]) == (measures, 40)
    row = await api.deps.views.first(JOBS, {"id": job["id"]})
    assert row is not None
    assert row.spec.measures is not None
    assert b"lantern" not in bytes(row.spec.measures.ciphertext)
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert recipe["eval"] | asked == recipe["eval"]
    other = (await submit(client, file_id)).json()
    assert (other["duplicate_of"], other["eval"]["measures"]) == (None, None)
    body = {"model": "tiny-llama", "training_file": file_id}
    path = "/v1/fine_tuning/jobs/estimate"
    plain = (await client.post(path, json=body)).json()
    more = (await client.post(path, json={**body, "eval": asked})).json()
    assert more["eval_gpu_ms"] > plain["eval_gpu_ms"]


async def test_first_hour_jobs_are_listed_by_status_and_suffix(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    first = (await submit(client, file_id, suffix="demo")).json()["id"]
    second = (await submit(client, file_id, suffix="other", seed=1)).json()["id"]
    await client.post(f"/v1/fine_tuning/jobs/{first}/cancel")
    for params, ids in (
        ({"suffix": "demo"}, [first]),
        ({"suffix": "none"}, []),
        ({"status": "cancelled"}, [first]),
        ({"status": "cancelled", "suffix": "other"}, []),
        ({"status": "paused"}, []),
        ({"suffix": "other", "limit": "1"}, [second]),
    ):
        listed = await client.get("/v1/fine_tuning/jobs", params=params)
        assert [job["id"] for job in listed.json()["data"]] == ids
    wrong = await client.get("/v1/fine_tuning/jobs", params={"status": "done"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "status")


LONG_SUFFIX = "é" * 65
#: what the first user sent, each with one change: the field that is named, and words of the message
TWISTS: list[tuple[dict[str, Any], str, str]] = [
    ({"dry_run": "yes"}, "dry_run", "must be true or false"),
    ({"suffix": LONG_SUFFIX}, "suffix", "at most 64 characters"),
    ({"suffix": ""}, "suffix", "must not be empty"),
    ({"lora": {"rnk": 8}}, "lora.rnk", "unknown; lora takes rank"),
    ({"lora": {"rank": "8"}}, "lora.rank", "must be a whole number"),
    ({"lora": {"rank": 8.5}}, "lora.rank", "must be a whole number"),
    ({"lora": None, "training": {"lora": {}}}, "training.lora", "unknown"),
    ({"hyperparameters": {"n_epochs": True}}, "hyperparameters.n_epochs", "must be"),
    ({"hyperparameters": {"n_epochs": "Auto"}}, "hyperparameters.n_epochs", "must be"),
    ({"hyperparameters": {"learning_rate_multiplier": 0}}, "learning_rate_multiplier", "must be"),
    ({"budget": {"max_amount_micro": 0.3}}, "budget.max_amount_micro", "must be"),
    ({"metadata": {"k" * 65: "v"}}, "metadata", "at most 64"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "16"),
    ({"metadata": {"team": None}}, "metadata.team", "must be"),
    ({"seed": -1}, "seed", "must be"),
    ({"seed": 2**31}, "seed", "must be"),
    ({"eval": {"drop_max": "10 %"}}, "eval.drop_max", "must be a number"),
    ({"eval": {"prompts": ["Who?", 7]}}, "eval.prompts.1", "must be a text"),
    ({"eval": {"measures": ["bleurt"]}}, "eval.measures.0", "must be one of exact_match"),
    ({"eval": {"measured_rows": 30}}, "eval.measured_rows", "needs measures"),
    (
        {"eval": {"measures": ["chrf"], "measured_rows": 9}},
        "eval.measured_rows",
        "must be a whole number from 20 to 256",
    ),
    (
        {"eval": {"measures": ["chrf"], "validation_fraction": 0}},
        "eval.measures",
        "needs rows to validate on",
    ),
    ({"integrations": {"type": "wandb"}}, "integrations", "must be a list"),
    ({"integrations": [{"type": "neptune"}]}, "integrations.0.type", "must be 'mlflow'"),
    ({"integrations": [{"type": "wandb"}]}, "integrations.0", 'needs "wandb"'),
    (
        {"integrations": [{"type": "wandb", "wandb": {"project": "a/b"}}]},
        "integrations.0.wandb.project",
        "should match pattern",
    ),
    (
        {"integrations": [{"type": "wandb", "wandb": {"project": "a", "api_key": "x"}}]},
        "integrations.0.wandb.api_key",
        "is not a known field",
    ),
    (
        {"integrations": [{"type": "tensorboard", "mlflow": {"experiment": "a"}}]},
        "integrations.0",
        "has 'mlflow'",
    ),
    ({"integrations": [{"type": "tensorboard"}] * 2}, "integrations", "'tensorboard' twice"),
    ({"method": {"type": "Supervised"}}, "method.type", "supervised"),
    ({"placement": {"domain_wait_minutes": 0}}, "placement.domain_wait_minutes", "must be"),
]


@pytest.mark.parametrize(("change", "param", "words"), TWISTS)
async def test_first_hour_bad_input_with_a_twist_names_its_field(
    change: dict[str, Any], param: str, words: str, api: ControlPlane
) -> None:
    client, file_id = await ready(api)
    answer = await submit(client, file_id, **change)
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert param in error["param"] + error["message"]
    assert words in error["message"]


async def test_the_request_id_of_a_submission_is_in_events_and_log_lines_of_services(
    api: ControlPlane,
) -> None:
    """Issue 19: also the client's trace, and through the reactions of one service to another."""
    client, file_id = await ready(api)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    header = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    with logged() as lines:
        answer = await submit(client, file_id, headers=header)
        request_id = answer.headers["x-request-id"]

        async def is_pinned() -> bool:
            decided = lines.of("decision.settled")
            streams = {line["stream"] for line in decided if line["request_id"] == request_id}
            return {"dataset", "job"} <= streams

        await until(is_pinned)
    job_id = answer.json()["id"]
    (command,) = lines.of("command.decided")
    assert (command["job_id"], command["request_id"]) == (job_id, request_id)
    decided = [line for line in lines.of("decision.settled") if line["request_id"] == request_id]
    assert {line["trace_id"] for line in (command, *decided)} == {trace}
    submitted = next(line for line in decided if "JobSubmitted" in line["events"])
    assert (submitted["stream"], submitted["job_id"]) == ("job", job_id)
    assert submitted["tenant"] == client.headers["x-tenant"]
