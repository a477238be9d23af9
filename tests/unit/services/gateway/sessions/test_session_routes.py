"""Sessions and their commands for people, and for their own tenant alone."""

import asyncio
from hashlib import sha256

import httpx

from schemas.admission import TENANT_BUDGET, BudgetTerms, SetBudget
from schemas.topics import JOB
from schemas.training import ADAPTER_FILES, BlobFile
from services.gateway.sessions.messages import INT64, PassRequest
from tests.unit.services.gateway.control_plane import BASE, SETTLE_S_MAX, ControlPlane
from tests.unit.services.gateway.sessions.sdk import new_sdk
from tunery.work.session import PathAnswer

WEIGHTS = b"weights"
FILES = tuple(
    BlobFile(name=name, blob=f"t/x/sessions/{name}", sha256=sha256(WEIGHTS).hexdigest(), bytes=7)
    for name in ADAPTER_FILES
)


async def test_sessions_and_their_commands_are_listed_for_their_tenant(api: ControlPlane) -> None:
    sdk, stranger = await new_sdk(api), await new_sdk(api)
    first, second = await sdk.model(), await sdk.model()
    listed = (await sdk.client.get("/v1/sessions")).json()["data"]
    assert [session["id"] for session in listed] == [second, first]
    assert (listed[0]["model"], listed[0]["rank"]) == (BASE.base_id, 4)
    assert (listed[0]["ends"], listed[0]["max_tokens"]) == (None, 100_000_000)
    assert (await sdk.client.get(f"/v1/sessions/{first}")).json() == listed[1]
    commands = (await sdk.client.get(f"/v1/sessions/{first}/commands")).json()["data"]
    assert [(each["kind"], each["seq"], each["answered_at"]) for each in commands] == [
        ("optim_step", 1, None)
    ]

    assert (await stranger.client.get("/v1/sessions")).json()["data"] == []
    for path in (first, f"{first}/commands"):
        assert (await stranger.client.get(f"/v1/sessions/{path}")).status_code == 404
    assert (await stranger.client.post(f"/v1/sessions/{first}/end")).status_code == 404


async def test_a_session_may_use_more_and_until_then_its_client_waits(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model(user_metadata={"tunery_max_tokens": "5"})
    path = f"/v1/sessions/{session_id}"
    row = PassRequest(model_id=session_id, seq_id=2, loss_fn="cross_entropy")
    datum = row.data.add()
    datum.model_input.add().encoded_text.tokens = bytes(4 * 9)
    targets = datum.loss_fn_inputs["target_tokens"]
    targets.dense, targets.dtype = bytes(8 * 9), INT64

    async def ask() -> httpx.Response:
        return await sdk.client.post(
            "/api/v1/forward_backward",
            content=row.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        )

    waits = await ask()
    assert (waits.status_code, waits.json()["error"]["code"]) == (402, "budget_exceeded")
    assert "tunery session raise" in waits.json()["error"]["message"]
    lower = await sdk.client.post(f"{path}/raise", json={"max_tokens": 4})
    assert (lower.status_code, "not lowered" in lower.text) == (400, True)
    raised = await sdk.client.post(f"{path}/raise", json={"max_tokens": 100, "max_minutes": 300})
    assert raised.is_success, raised.text
    assert (raised.json()["max_tokens"], raised.json()["max_minutes"]) == (100, 300)
    async with asyncio.timeout(SETTLE_S_MAX):
        while (await ask()).status_code == 402:  # noqa: ASYNC110  # the session hears of it
            await asyncio.sleep(0.01)
    assert (await ask()).is_success
    session = (await sdk.client.get(path)).json()
    assert (session["max_tokens"], session["max_minutes"]) == (100, 300)
    stranger = await new_sdk(api)
    assert (await stranger.client.post(f"{path}/raise", json={})).status_code == 404


async def test_without_credit_a_model_is_refused_until_there_is_some(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    for amount, status in ((1, 402), (10**12, 200)):
        terms = BudgetTerms(budget_id=TENANT_BUDGET, currency="EUR", max_amount_micro=amount)
        await api.send(JOB, sdk.tenant, SetBudget(terms=terms))
        for _ in range(2):  # the SDK repeats the same request
            created = await sdk.create(session_id="client-1")
            assert created.status_code == status, created.text


async def test_what_a_session_saved_becomes_a_version_by_the_gate(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    name = {"name": "best", "suffix": "mine"}
    url = f"/v1/sessions/{session_id}/versions"
    missing = await sdk.client.post(url, json=name)
    assert (missing.status_code, "sampler_weights/best" in missing.text) == (404, True)
    saves = {"model_id": session_id, "seq_id": 2, "path": "best"}
    assert (await sdk.call("save_weights_for_sampler", saves)).is_success
    path = f"tinker://{session_id}/sampler_weights/best"
    for file in FILES:
        await api.world.blobs.put(file.blob, WEIGHTS)
    await sdk.answer(session_id, "2", PathAnswer(path=path), saved=FILES)
    assert (await sdk.future(f"{session_id}/2")).is_success  # once it is known
    first = await sdk.client.post(url, json=name)
    assert first.status_code == 201, first.text
    job = first.json()
    assert f":{sdk.tenant}:mine:" in job["model"]
    assert job["hyperparameters"]["rank"] == 4
    estimate = (await sdk.client.get(f"/v1/fine_tuning/jobs/{job['id']}/cost")).json()["estimate"]
    assert estimate["train_gpu_ms"] == 0 < estimate["eval_gpu_ms"]
    copied = [key for key in api.world.blobs.bodies if f"/imports/{job['id']}/" in key]
    assert len(copied) == len(FILES)
    stranger = await new_sdk(api)
    assert (await stranger.client.post(url, json=name)).status_code == 404


async def test_starts_of_a_session_change_no_setting(
    api: ControlPlane,
) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    starts = await sdk.client.get(f"/v1/fine_tuning/jobs/{session_id}/starts")
    assert starts.is_success, starts.text
    assert [row["change"] for row in starts.json()["data"]] == ["none"]


async def test_a_session_is_ended_once(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    for _ in range(2):
        ended = await sdk.client.post(f"/v1/sessions/{session_id}/end")
        assert ended.json()["ends"] == "client"
    refused = await sdk.call("optim_step", {"model_id": session_id, "seq_id": 2, "adam_params": {}})
    assert refused.status_code == 409
