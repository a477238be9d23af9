"""Report of an import: answers of the new models beside those of the old ones."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from schemas import errors
from schemas.topics import POOL
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.tables.jobs import JOBS
from tests.unit.services.gateway.batches.test_routes import ENDED
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.imports.test_routes import ended, stub
from tests.unit.services.gateway.imports.test_training import OLD, PRICES, content, imported
from tests.unit.services.gateway.jobs.job_events import SUMMARY
from tests.unit.services.gateway.models.test_routes import version
from tunery.exit_kit.stand_in import KEY, AccountStub
from tunery.runtime.store.abstract import RowBatch
from tunery.work.engine import AnswerEnded, EngineReply, Question, TextAdded

__all__ = ["engine", "stub"]  # fixtures


def double(messages: list[dict[str, Any]]) -> str:
    return f"It is {2 * int(messages[-1]['content'].split()[2])}. <i>Yes</i>"


async def asked_import(api: ControlPlane, owner: httpx.AsyncClient, stub: AccountStub) -> str:
    """An import of a model that has answered, and of a job that has failed; its path."""
    done = await imported(
        api, owner, stub, teacher_budget_micro=100_000, prices=PRICES, answer=double
    )
    return f"/v1/fine_tuning/imports/{done['id']}"


async def trained(api: ControlPlane, owner: httpx.AsyncClient, path: str) -> str:
    """Submit the job of an import, and give it a model and a verdict; its id."""
    plan_file = (await owner.get(path.replace("/fine_tuning", ""))).json()["plan_file_id"]
    request = json.loads(await content(owner, plan_file))["jobs"][1]["request"]
    for name in ("training_file", "validation_file"):
        await api.validated(owner, request[name])
    job_id: str = (await owner.post("/v1/fine_tuning/jobs", json=request)).json()["id"]
    model_id = await version(api, owner, "moved", job_id=job_id)
    where = {"tenant": owner.headers["x-tenant"], "id": job_id}
    change = JOBS.update(where, model_id=model_id, gate=SUMMARY)
    name, partition = VIEWS_PROJECTION.name, (POOL.name, 0)
    position = (await api.runtime.store.positions(name))[partition].position
    await api.runtime.store.commit(
        RowBatch(name, VIEWS_PROJECTION.version, partition, position.offset, position, (change,))
    )
    return job_id


async def test_exit_kit_moved_models_stand_beside_the_old_ones_on_a_page_over_http(
    api: ControlPlane, stub: AccountStub, engine: ScriptedEngine
) -> None:
    """The report names what is missing, and a repeated request asks no model again."""
    owner = await api.tenant()
    path = await asked_import(api, owner, stub)
    early = await owner.post(f"{path}/answers")
    assert (early.status_code, early.json()["error"]["code"]) == (409, errors.ILLEGAL_STATE)
    assert "has a model here: submit them" in early.text
    assert "not compared: it was not submitted" in (await owner.get(f"{path}/report")).text
    job_id = await trained(api, owner, path)
    assert f"ask it with POST {path}/answers" in (await owner.get(f"{path}/report")).text
    engine.begin((TextAdded("<b>No</b>"), AnswerEnded("stop", 5, 2)))
    batch = (await owner.post(f"{path}/answers")).json()
    assert batch["metadata"] == {"import": path.rpartition("/")[2]}
    await api.until(owner, f"/v1/batches/{batch['id']}", lambda row: row["status"] in ENDED)
    again = (await owner.post(f"{path}/answers")).json()
    assert (again["id"], again["status"]) == (batch["id"], "completed")
    assert len(engine.asked) == len(stub.questions) == 10
    assert {(q.sampling.temperature, q.sampling.tokens_max) for q in engine.asked} == {(0, 512)}
    page = await owner.get(f"{path}/report")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for words in (
        "Moved: 0 of 1 models reach 95 % of the old one",
        f"<dt>job here</dt><dd>{job_id}</dd>",
        f"<h2>{OLD}</h2>",
        "95 % not reached: ruled out (95 %)",
        "&lt;i&gt;Yes&lt;/i&gt;",
        "&lt;b&gt;No&lt;/b&gt;",
        "held out here; the old model was trained on them",
        "The gate, which compares the new model with its base",
    ):
        assert words in page.text, words
    assert "<i>Yes" not in page.text
    assert "<b>No" not in page.text
    stranger = await api.tenant()
    assert (await stranger.get(f"{path}/report")).status_code == 404
    assert (await stranger.post(f"{path}/answers")).status_code == 404


async def test_exit_kit_moved_models_that_were_cut_off_are_asked_for_the_rest(
    api: ControlPlane, stub: AccountStub, engine: ScriptedEngine
) -> None:
    """A batch that was cancelled has no answers; the next batch has the old model's."""
    owner = await api.tenant()
    path = await asked_import(api, owner, stub)
    await trained(api, owner, path)
    engine.begin(away=True)
    at_once = await asyncio.gather(*(owner.post(f"{path}/answers") for _ in range(3)))
    assert {answer.status_code for answer in at_once} <= {200, 409}
    first = (await owner.post(f"{path}/answers")).json()
    assert [row["id"] for row in (await owner.get("/v1/batches")).json()["data"]] == [first["id"]]
    await owner.post(f"/v1/batches/{first['id']}/cancel")
    await api.until(owner, f"/v1/batches/{first['id']}", lambda row: row["status"] in ENDED)
    assert f"({first['id']} is cancelled)" in (await owner.get(f"{path}/report")).text
    engine.begin()
    second = (await owner.post(f"{path}/answers")).json()
    assert second["id"] != first["id"]
    await api.until(owner, f"/v1/batches/{second['id']}", lambda row: row["status"] in ENDED)
    assert len(engine.asked) == 10
    assert "not compared" not in (await owner.get(f"{path}/report")).text


async def test_exit_kit_a_report_needs_old_answers_and_asking_needs_the_scope_to_chat(
    api: ControlPlane, stub: AccountStub
) -> None:
    owner = await api.tenant()
    done = await imported(api, owner, stub)  # without a budget
    path = f"/v1/fine_tuning/imports/{done['id']}"
    for answer in (await owner.get(f"{path}/report"), await owner.post(f"{path}/answers")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, errors.ILLEGAL_STATE)
        assert "No old model has answered" in answer.json()["error"]["message"]
    stub.refusal = (401, "Incorrect API key provided.")
    begun = await owner.post("/v1/imports", json={"key": KEY, "base_url": stub.url})
    failed = await ended(api, owner, begun.json())
    planless = await owner.get(f"/v1/fine_tuning/imports/{failed['id']}/report")
    assert (planless.status_code, "has no plan" in planless.text) == (409, True)
    missing = await owner.get("/v1/fine_tuning/imports/import_none/report")
    assert missing.status_code == 404
    tenant = owner.headers["x-tenant"]
    statuses = []
    for scopes in (["jobs.read"], ["jobs.write"], ["files.read", "chat.write"]):
        body = {"name": "narrow", "scopes": scopes}
        key = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
        narrow = api.client(key, tenant)
        answers = await narrow.get(f"{path}/report"), await narrow.post(f"{path}/answers")
        statuses.append(tuple(answer.status_code for answer in answers))
    assert statuses == [(409, 403), (403, 403), (403, 403)]


async def test_exit_kit_answers_that_are_too_many_for_a_page_are_refused(
    api: ControlPlane, stub: AccountStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await api.tenant()
    path = await asked_import(api, owner, stub)
    monkeypatch.setattr("services.gateway.imports.report_routes.BYTES_MAX", 10)
    answer = await owner.get(f"{path}/report")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "import_id")
    assert "and 10 are compared. Read its teacher_file_id" in answer.text


LABELLED = [{"prompt": f"{n}?", "a": "good", "b": "bad", "better": "a"} for n in range(30)]


def judging(question: Question) -> Sequence[EngineReply]:
    """A new model whose answers are good, and a judge that prefers what is good."""
    words = question.messages[-1]["content"]
    if words.startswith("{"):
        words = '{"better": "%s"}' % ("A" if "good" in json.loads(words)["answer_a"] else "B")
    else:
        words = "good"
    return TextAdded(words), AnswerEnded("stop", 5, 2)


async def test_exit_kit_a_judge_over_http_compares_both_answers_in_both_orders_once(
    api: ControlPlane, stub: AccountStub, engine: ScriptedEngine
) -> None:
    """The judge is asked in a batch, also about labelled pairs, and never about its own answers."""
    owner = await api.tenant()
    path = await asked_import(api, owner, stub)
    body = {"judge": BASE.base_id, "pairs": LABELLED}
    await trained(api, owner, path)
    early = await owner.post(f"{path}/judgements", json=body)
    assert (early.status_code, early.json()["error"]["code"]) == (409, errors.ILLEGAL_STATE)
    assert f"POST {path}/answers first" in early.text
    engine.begin(judging)
    answered = (await owner.post(f"{path}/answers")).json()
    await api.until(owner, f"/v1/batches/{answered['id']}", lambda row: row["status"] in ENDED)
    judged = {"judge": BASE.base_id}
    unasked = await owner.get(f"{path}/report", params=judged)
    assert "it has compared 0 of 10 pairs of answers: ask it again" in unasked.text
    engine.begin(judging)
    batch = (await owner.post(f"{path}/judgements", json=body)).json()
    done = await api.until(owner, f"/v1/batches/{batch['id']}", lambda row: row["status"] in ENDED)
    assert done["request_counts"] == {"total": 80, "completed": 80, "failed": 0}
    again = (await owner.post(f"{path}/judgements", json=body)).json()
    assert (again["id"], len(engine.asked)) == (batch["id"], 80)
    page = (await owner.get(f"{path}/report", params=judged)).text
    assert f"The judge {BASE.base_id}, which compares" in page
    assert "a judge prefers the new model&#39;s answers" in page
    assert "The judge" not in (await owner.get(f"{path}/report")).text
    model = (await owner.get("/v1/models")).json()["data"]
    own = next(each["id"] for each in model if each["id"].startswith("ft:"))
    refused = await owner.post(f"{path}/judgements", json={**body, "judge": own})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "judge")
    few = await owner.post(f"{path}/judgements", json={**body, "pairs": LABELLED[:5]})
    assert (few.status_code, few.json()["error"]["param"]) == (400, "pairs")
    unknown = await owner.post(f"{path}/judgements", json={**body, "judge": "nobody"})
    assert unknown.status_code == 404
    stranger = await api.tenant()
    assert (await stranger.post(f"{path}/judgements", json=body)).status_code == 404


async def test_exit_kit_a_judge_over_http_that_goes_by_order_is_not_used(
    api: ControlPlane, stub: AccountStub, engine: ScriptedEngine
) -> None:
    owner = await api.tenant()
    path = await asked_import(api, owner, stub)
    await trained(api, owner, path)
    engine.begin((TextAdded('{"better": "A"}'), AnswerEnded("stop", 5, 2)))
    for route, body in (
        ("answers", None),
        ("judgements", {"judge": BASE.base_id, "pairs": LABELLED}),
    ):
        batch = (await owner.post(f"{path}/{route}", json=body)).json()
        await api.until(owner, f"/v1/batches/{batch['id']}", lambda row: row["status"] in ENDED)
    page = (await owner.get(f"{path}/report", params={"judge": BASE.base_id})).text
    assert "the order alone decides 100 %" in page
