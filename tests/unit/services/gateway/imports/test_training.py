"""Asking old models and training an import's plan over HTTP, both within a budget."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from schemas import errors
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.imports.test_routes import ended, recorded, stub
from tests.unit.tunery.exit_kit.test_others import TUNED, AzureStub, TogetherStub, together_job
from tunery.exit_kit.stand_in import KEY, AccountStub, rows

__all__ = ["stub"]  # a fixture

OLD = f"ft:{BASE.base_id}:acme:faq:1"
PRICES = [{"models": ["ft:*"], "input": 0.3, "output": "1.20"}]


async def imported(
    api: ControlPlane,
    owner: httpx.AsyncClient,
    stub: AccountStub,
    answer: Callable[[list[dict[str, Any]]], str] | None = None,
    **asked: Any,
) -> Any:
    """An import of one trained model that has ended. answer: what that model says"""
    stub.add_file("file-a", rows(60))
    stub.add_job("ftjob-1", "file-a", model=BASE.base_id, fine_tuned_model=OLD)
    stub.add_job("ftjob-2", "file-a", status="failed", fine_tuned_model=None)
    stub.answers[OLD] = answer or (lambda messages: f"It is what {messages[-1]['content'][:8]}")
    begun = await owner.post("/v1/imports", json={"key": KEY, "base_url": stub.url, **asked})
    assert begun.status_code == 200, begun.text
    done = await ended(api, owner, begun.json())
    assert (done["status"], done["error"]) == ("completed", None)
    return done


async def content(owner: httpx.AsyncClient, file_id: str) -> str:
    return (await owner.get(f"/v1/files/{file_id}/content")).text


async def test_exit_kit_old_models_answer_over_http_within_a_budget(
    api: ControlPlane, stub: AccountStub
) -> None:
    owner = await api.tenant()
    done = await imported(api, owner, stub, teacher_budget_micro=100_000, prices=PRICES)
    plan = json.loads(await content(owner, done["plan_file_id"]))
    [asked] = plan["teacher"]
    assert (asked["model"], asked["answered"], asked["reason"]) == (OLD, 10, None)
    assert 0 < asked["spent_micro"] <= 100_000
    text = await content(owner, done["teacher_file_id"])
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == len(stub.questions) == 10
    assert all(line["answer"].startswith("It is what ") and line["reference"] for line in lines)
    held_out = await content(owner, plan["jobs"][1]["request"]["validation_file"])
    asked_there = {json.loads(row)["messages"][0]["content"] for row in held_out.splitlines()}
    assert {line["messages"][-1]["content"] for line in lines} <= asked_there


@pytest.mark.parametrize("stub", [AzureStub], indirect=True)
async def test_exit_kit_models_of_azure_answer_over_http_by_their_deployments(
    api: ControlPlane, stub: AzureStub
) -> None:
    """A model without a named deployment is listed with what is missing."""
    owner = await api.tenant()
    stub.add_file("file-a", rows(60))
    stub.add_job("ftjob-1", "file-a", model=BASE.base_id, fine_tuned_model=TUNED)
    stub.answers["faq"] = lambda _messages: "It is 2."
    asked = {
        "source": "azure",
        "base_url": stub.url.removesuffix("/v1"),
        "api_version": "2025-04-01-preview",
        "teacher_budget_micro": 100_000,
        "prices": [{"models": ["gpt-4o-mini*"], "input": 0.3, "output": 1.2}],
    }
    reasons = []
    for deployments in ({}, {TUNED: "faq"}):
        body = {"key": KEY, **asked, "deployments": deployments}
        begun = (await owner.post("/v1/imports", json=body)).json()
        done = await ended(api, owner, begun)
        assert (done["status"], done["source"], done["error"]) == ("completed", "azure", None)
        [answers] = json.loads(await content(owner, done["plan_file_id"]))["teacher"]
        reasons.append((answers["answered"], answers["reason"]))
    option = f"--deployment {TUNED}=NAME, or `deployments` over HTTP"
    assert reasons == [(0, f"it answers by its deployment: {option}"), (10, None)]
    assert stub.versions == {"2025-04-01-preview"}
    assert not any(b'"faq"' in record or KEY.encode() in record for record in recorded(api))


@pytest.mark.parametrize("stub", [TogetherStub], indirect=True)
async def test_exit_kit_an_account_of_together_is_planned_over_http(
    api: ControlPlane, stub: TogetherStub
) -> None:
    owner = await api.tenant()
    stub.add_file("file-a", rows())
    stub.jobs = [together_job("ft-1", status="completed") | {"model": BASE.base_id}]
    body = {"key": KEY, "source": "together", "base_url": stub.url}
    done = await ended(api, owner, (await owner.post("/v1/imports", json=body)).json())
    assert (done["status"], done["source"], done["error"]) == ("completed", "together", None)
    [planned] = json.loads(await content(owner, done["plan_file_id"]))["jobs"]
    assert planned["tuned_model"] == "acme/faq-91"
    assert planned["request"]["lora"] == {"rank": 8, "alpha": 16}


@pytest.mark.parametrize(
    ("budget", "reason"),
    [(0, "the budget has no room for the others"), (None, None)],
)
async def test_exit_kit_a_budget_of_0_or_none_asks_no_old_model_over_http(
    api: ControlPlane, stub: AccountStub, budget: int | None, reason: str | None
) -> None:
    owner = await api.tenant()
    asked: dict[str, Any] = {"teacher_budget_micro": budget, "prices": PRICES}
    asked = {} if budget is None else asked
    done = await imported(api, owner, stub, **asked)
    plan = json.loads(await content(owner, done["plan_file_id"]))
    assert [each["reason"] for each in plan.get("teacher", ())] == ([reason] if reason else [])
    assert (done["teacher_file_id"], stub.questions) == (None, [])


async def test_exit_kit_a_plan_is_trained_over_http_once_and_within_its_budget(
    api: ControlPlane, stub: AccountStub
) -> None:
    """A budget below the price submits nothing, and a repeated request submits nothing more."""
    owner = await api.tenant()
    done = await imported(api, owner, stub)
    plan = json.loads(await content(owner, done["plan_file_id"]))
    await api.validated(owner, plan["jobs"][1]["request"]["training_file"])
    await api.validated(owner, plan["jobs"][1]["request"]["validation_file"])
    path = f"/v1/fine_tuning/imports/{done['id']}"
    said = (await owner.post(f"{path}/estimate")).json()
    priced, failed = said["data"]
    assert (priced["source_job"], priced["error"], priced["job_id"]) == ("ftjob-1", None, None)
    assert 0 < priced["amount_micro"] < priced["amount_max_micro"] == said["amount_max_micro"]
    assert priced["expected_duration_seconds"] <= priced["max_duration_seconds"]
    assert failed["error"] == "it is failed there, and has no model to replace"
    most = said["amount_max_micro"]
    for budget in (0, most - 1):
        poor = await owner.post(f"{path}/jobs", json={"max_amount_micro": budget})
        assert (poor.status_code, poor.json()["error"]["code"]) == (400, errors.BUDGET_TOO_SMALL)
        assert poor.json()["error"]["param"] == "max_amount_micro"
    assert (await owner.get("/v1/fine_tuning/jobs")).json()["data"] == []
    answers = [await owner.post(f"{path}/jobs", json={"max_amount_micro": most}) for _ in range(2)]
    first, again = (answer.json()["data"][0]["job_id"] for answer in answers)
    assert first == again
    [job] = (await owner.get("/v1/fine_tuning/jobs")).json()["data"]
    assert (job["id"], job["metadata"]["openai_job"]) == (first, "ftjob-1")


async def test_exit_kit_an_import_without_a_plan_is_not_trained(
    api: ControlPlane, stub: AccountStub
) -> None:
    owner = await api.tenant()
    stub.refusal = (401, "Incorrect API key provided.")
    begun = await owner.post("/v1/imports", json={"key": KEY, "base_url": stub.url})
    done = await ended(api, owner, begun.json())
    path = f"/v1/fine_tuning/imports/{done['id']}"
    for answer in (
        await owner.post(f"{path}/estimate"),
        await owner.post(f"{path}/jobs", json={"max_amount_micro": 1}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, errors.ILLEGAL_STATE)
    gone = await owner.post("/v1/fine_tuning/imports/import_none/estimate")
    assert gone.status_code == 404
