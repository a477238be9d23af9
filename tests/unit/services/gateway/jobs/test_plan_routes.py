"""Plans over HTTP: nothing is recorded, and refusals are those of a submission."""

from typing import Any

from msgspec.structs import replace

from schemas.pool import RegisterNode
from simulator.control_plane.samples import node
from tests.unit.services.gateway.accounts.test_budget_routes import keeper
from tests.unit.services.gateway.control_plane import BASE, ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_node_routes import known, send
from tests.unit.services.gateway.jobs.test_routes import ready, submit

PLAN = "/v1/fine_tuning/jobs/plan"


async def test_a_plan_says_of_each_setting_where_it_comes_from(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {
        "model": BASE.base_id,
        "training_file": file_id,
        "lora": {"rank": 4},
        "training": {"learning_rate_multiplier": 2},
    }
    plan = (await client.post(PLAN, json=body)).json()
    settings = {setting["name"]: setting for setting in plan["settings"]}
    assert settings["rank"] | {"why": ""} == {
        "name": "rank",
        "value": 4,
        "source": "given",
        "path": "lora.rank",
        "why": "",
    }
    assert settings["learning_rate"]["path"] == "training.learning_rate_multiplier"
    sources = {name: setting["source"] for name, setting in settings.items()}
    assert sources["alpha"] == "rule"
    assert sources["dropout"] == "default"
    assert (sources["seed"], sources["method"]) == ("rule", "default")
    assert all(setting["why"] for setting in plan["settings"])
    assert plan["recipe"]["training"]["alpha"] == settings["alpha"]["value"] == 8
    assert plan["estimate"]["amount_max_micro"] > 0
    assert (plan["allowed_to_proceed"], plan["refusals"], plan["unchecked"]) == (True, [], [])


async def test_a_plan_records_nothing_and_sends_no_command(
    api: ControlPlane, monkeypatch: Any
) -> None:
    client, file_id = await ready(api)
    sent: list[object] = []

    async def decide(*arguments: object, **_: object) -> None:
        sent.append(arguments)

    monkeypatch.setattr(api.deps.commands, "decide", decide)
    body = {"model": BASE.base_id, "training_file": file_id}
    assert (await client.post(PLAN, json=body)).status_code == 200
    assert sent == []
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []


async def test_a_plan_is_refused_as_the_submission_is(api: ControlPlane) -> None:
    limits = {"concurrency": 1, "soft_gpu_ms": 10**9, "hard_gpu_ms": 10**9}
    busy = await api.tenant(limits=limits)
    running = (await api.upload(busy))["id"]
    await api.validated(busy, running)
    assert (await submit(busy, running)).status_code == 200
    poor = await api.tenant(limits={"concurrency": 5, "soft_gpu_ms": 1, "hard_gpu_ms": 1})
    unused = (await api.upload(poor))["id"]
    await api.validated(poor, unused)
    small, file_id = await ready(api)
    saver, _, body = await keeper(api)
    assert (await saver.post("/v1/budgets", json={"max_amount_micro": 1})).status_code < 300
    for client, file, extra, code in (
        (busy, running, {}, "concurrency_limit_exceeded"),
        (poor, unused, {}, "hard_limit_exceeded"),
        (small, file_id, {"budget": {"max_amount_micro": 1}}, "budget_too_small"),
        (saver, body["training_file"], {}, "budget_exceeded"),
    ):
        whole = {"model": BASE.base_id, "training_file": file, **extra}
        plan = (await client.post(PLAN, json=whole)).json()
        refused = (await submit(client, file, **extra)).json()["error"]
        assert plan["allowed_to_proceed"] is False
        assert [item["code"] for item in plan["refusals"]] == [code] == [refused["code"]]
        (refusal,) = plan["refusals"]
        assert refusal["message"] == refused["message"]
        more = refusal["more_micro"] or refusal["more_gpu_ms"]
        assert (more is None) == (code == "concurrency_limit_exceeded")
    # so much more of the budget, and no less, admits it
    for short, allowed in ((1, False), (0, True)):
        budget = {"max_amount_micro": 1 + refusal["more_micro"] - short}
        assert (await saver.post("/v1/budgets", json=budget)).status_code < 300
        again = await saver.post(PLAN, json=body)
        assert again.json()["allowed_to_proceed"] is allowed


async def test_a_plan_names_all_refusals_and_what_was_not_checked(api: ControlPlane) -> None:
    limits = {"concurrency": 1, "soft_gpu_ms": 1, "hard_gpu_ms": 1}
    client = await api.tenant(limits=limits)
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"spend_cap_micro": 10**9})
    capped = api.client(created.json()["key"], tenant)
    file = await api.upload(client)
    body = {"model": BASE.base_id, "training_file": file["id"]}
    early = (await capped.post(PLAN, json=body)).json()
    assert early["estimate"]["estimation_available"] is False
    assert early["unchecked"] == [
        "what the API key may spend in a month",
        "whether budgets allow the job: its file is being validated",
    ]
    await api.validated(client, file["id"])
    small = {**body, "budget": {"max_gpu_hours": 0.001}}
    plan = (await capped.post(PLAN, json=small)).json()
    codes = [item["code"] for item in plan["refusals"]]
    assert codes == ["hard_limit_exceeded", "budget_too_small"]


async def test_a_plan_shows_which_nodes_fit_and_why_others_do_not() -> None:
    async with control_plane() as plane:  # a pool in which no other test has nodes
        client, file_id = await ready(plane)
        cpu = node("cpu", "a-1").node
        await send(plane, RegisterNode(node=cpu))
        spot = replace(cpu, node_id="spot", spot=True)
        await send(plane, RegisterNode(node=spot))
        await send(plane, RegisterNode(node=replace(cpu, node_id="tainted", taints=("research",))))
        await known(plane, "up", "tainted")
        body = {"model": BASE.base_id, "training_file": file_id, "placement": {"spot": False}}
        plan = (await client.post(PLAN, json=body)).json()
        shown = [(kind["nodes"], kind["slots"], kind["why_not"]) for kind in plan["nodes"]]
        assert shown[0] == (1, 2, None)
        assert {why for _, _, why in shown[1:]} == {
            "the job is never on spot machines",
            "kept for jobs that tolerate research",
        }
        assert plan["queue"]["eta"] is not None
