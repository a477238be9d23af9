"""Tokens of sessions by kind: `GET /v1/usage/sessions`, and on invoices."""

from typing import Any

import httpx
import pytest

from schemas.session import (
    TOKEN_KINDS,
    AnswerCommand,
    LeaseSession,
    SessionCommand,
    SessionCommandKind,
    TakeCommand,
)
from schemas.topics import SESSION
from schemas.training import BlobFile
from services.gateway.billing import invoice_reads
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.sessions.sdk import NODE, Sdk, new_sdk
from tunery.work.session import StepAnswer

BODY = BlobFile(name="body", blob="t/x/b", sha256="ab" * 32, bytes=1)


async def ask(
    sdk: Sdk, session_id: str, seq: int, kind: SessionCommandKind, **changes: Any
) -> None:
    command = SessionCommand(seq=seq, kind=kind, body=BODY, **changes)
    await sdk.api.send(SESSION, sdk.tenant, TakeCommand(command=command), key=session_id)


async def results(client: httpx.AsyncClient, **query: Any) -> list[Any]:
    answer = await client.get("/v1/usage/sessions", params={"limit": 31, **query})
    assert answer.status_code == 200, answer.text
    return [result for bucket in answer.json()["data"] for result in bucket["results"]]


async def test_tinker_tokens_of_sessions_are_summed_by_kind(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()  # sends an optimizer step, which stays unanswered
    await ask(sdk, session_id, 2, "forward_backward", tokens=100)
    await ask(sdk, session_id, 3, "forward", tokens=20)
    await ask(sdk, session_id, 0, "sample", tokens=50, prompt_tokens=5, sampler="s")
    await api.send(SESSION, sdk.tenant, LeaseSession(attempt=1, node_ids=(NODE,)), key=session_id)
    for name, sampled in (("2", 0), ("3", 0), ("s:0", 7)):
        answer = AnswerCommand(attempt=1, name=name, answer=BODY, sampled=sampled)
        await api.send(SESSION, sdk.tenant, answer, key=session_id)
    expected: dict[str, Any] = {
        "object": "usage.sessions.result",
        "num_requests": 3,
        "train_tokens": 100,
        "prefill_tokens": 25,
        "sample_tokens": 7,
        "session_id": None,
    }
    await api.until(
        sdk.client,
        "/v1/usage/sessions?limit=31",
        lambda page: expected in [each for bucket in page["data"] for each in bucket["results"]],
    )
    (grouped,) = await results(sdk.client, group_by="session")
    assert grouped == {**expected, "session_id": session_id}
    assert await results((await new_sdk(api)).client) == []
    refused = await sdk.client.get("/v1/usage/sessions", params={"group_by": "model"})
    assert refused.status_code == 400
    await check_invoice(sdk.client, session_id, {kind: expected[kind] for kind in TOKEN_KINDS})
    (draft,) = (await sdk.client.get("/v1/invoices")).json()["data"]
    async with signed_in(console_of(api), key_of(sdk.client)) as browser:
        page = (await browser.get(f"/console/money/invoices/{draft['id']}")).text
        assert "<dd>tokens: 100 trained, 25 read, 7 sampled</dd>" in page
        assert f"tokens: 100 trained, 25 read, 7 sampled, {draft['period']}" in page


async def test_tinker_sessions_of_a_month_may_be_more_than_a_page(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoice_reads, "PAGE", 1)
    sdk = await new_sdk(api)
    sessions = [await sdk.model() for _ in range(2)]
    for session_id in sessions:
        await ask(sdk, session_id, 2, "forward", tokens=20)
        await sdk.answer(session_id, "2", StepAnswer(grad_norm=1.0))
    await api.until(sdk.client, "/v1/invoices", lambda page: page["data"][0]["prefill_tokens"] > 20)
    (draft,) = (await sdk.client.get("/v1/invoices")).json()["data"]
    lines = (await sdk.client.get(f"/v1/invoices/{draft['id']}/lines")).json()["data"]
    assert [line["job_id"] for line in lines if line["kind"] == "session"] == sorted(sessions)


async def check_invoice(
    client: httpx.AsyncClient, session_id: str, expected: dict[str, int]
) -> None:
    """Check the tokens on the draft, on the session's line and in its sum. They cost nothing."""
    (draft,) = (await client.get("/v1/invoices")).json()["data"]
    address = f"/v1/invoices/{draft['id']}"
    lines = (await client.get(f"{address}/lines")).json()["data"]
    (line,) = [line for line in lines if line["kind"] == "session"]
    sums = (await client.get(f"{address}/sums", params={"group_by": "job"})).json()["data"]
    (of_session,) = [each for each in sums if each["job_id"] == session_id]
    for record in (draft, line, of_session):
        assert {kind: record[kind] for kind in TOKEN_KINDS} == expected
    assert (line["job_id"], line["amount_micro"], line["tokens"]) == (session_id, 0, 0)
    assert line["description"] == f"tokens: 100 trained, 25 read, 7 sampled, {draft['period']}"
    assert sum(line["amount_micro"] for line in lines) == draft["total_micro"]
    page = (await client.get(f"{address}/page")).text
    assert f"session: {session_id}: tokens: 100 trained" in page
