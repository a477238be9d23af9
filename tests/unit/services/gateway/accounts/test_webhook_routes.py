"""Webhook endpoints over HTTP."""

import asyncio

import pytest

from schemas.account import (
    RICH_EVENT_TYPES,
    STANDARD_EVENT_TYPES,
    Announce,
    DeliveryOutcome,
    DeliveryReport,
    EndDelivery,
    WebhookEvent,
)
from schemas.topics import ACCOUNT
from services.gateway.settings import GatewaySettings
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret

BODY = {
    "name": "ci",
    "url": "https://example.com/hook",
    "event_types": ["fine_tuning.job.succeeded"],
}


async def test_the_secret_is_shown_once_and_is_the_notifiers(api: ControlPlane) -> None:
    client = await api.tenant()
    endpoint = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    tenant = client.headers["x-tenant"]
    assert endpoint["signing_secret"] == webhook_secret(api.runtime.seal, tenant, endpoint["id"], 1)
    assert endpoint["url"] == BODY["url"]
    shown = (await client.get(f"/v1/webhook_endpoints/{endpoint['id']}")).json()
    assert "signing_secret" not in shown
    assert shown["signing_secret_hint"] == f"…{endpoint['signing_secret'].rstrip('=')[-4:]}"
    assert shown["updated_at"] == shown["created_at"]
    listed = (await client.get("/v1/webhook_endpoints")).json()["data"]
    assert listed == [shown]
    rows = await api.runtime.store.rows("endpoints")
    assert "example.com" not in repr(rows)


async def test_deliveries_show_the_outcome_of_an_event(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{endpoint['id']}/deliveries"
    announced = Announce(
        event=WebhookEvent(
            event_id="evt_1",
            event_type="fine_tuning.job.succeeded",
            object_id="ftjob-1",
            created_at=1_000,
        )
    )
    await api.send(ACCOUNT, tenant, announced)
    pending = await api.until(client, path, lambda page: page["data"])
    delivery = pending["data"][0]
    assert delivery["outcome"] == "pending"
    assert delivery["event"]["data"] == {"id": "ftjob-1"}
    ended = EndDelivery(
        report=DeliveryReport(
            delivery_id=delivery["id"], outcome="delivered", attempts=2, status=204
        )
    )
    await api.send(ACCOUNT, tenant, ended)
    done = await api.until(client, path, lambda page: page["data"][0]["ended_at"])
    assert done["data"][0]["outcome"] == "delivered"
    assert (done["data"][0]["attempts"], done["data"][0]["status_code"]) == (2, 204)


async def test_the_default_event_types_are_those_of_openai(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    endpoint = (await client.post("/v1/webhook_endpoints", json={"url": BODY["url"]})).json()
    assert set(endpoint["event_types"]) == set(STANDARD_EVENT_TYPES)
    types = (await client.get("/v1/webhook_event_types")).json()["data"]
    assert set(types) == {*STANDARD_EVENT_TYPES, *RICH_EVENT_TYPES}


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "https://",
        "https:///hook",
        "https://me:secret@example.com/",
        "https://example.com:99999/",
        "https://[::1",
        "https://example.com/a b",
        "example.com",
    ],
)
async def test_invalid_receiver_urls_are_refused(api: ControlPlane, url: str) -> None:
    client = await api.tenant()
    refused = await client.post("/v1/webhook_endpoints", json={"url": url})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "url")
    assert "like https://example.com/hook" in refused.json()["error"]["message"]


async def test_an_endpoint_changes_and_its_secret_rotates(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    rich = ["fine_tuning.job.running"]
    changed = (await client.post(path, json={"event_types": rich})).json()
    assert (changed["event_types"], changed["url"]) == (rich, BODY["url"])
    assert changed["updated_at"] is not None
    refused = await client.post(path, json={"event_types": ["job.exploded"]})
    assert refused.json()["error"]["param"] == "event_types"
    rotated = (await client.post(f"{path}/rotate_secret")).json()
    assert rotated["signing_secret"] != endpoint["signing_secret"]
    assert rotated["signing_secret"] == webhook_secret(api.runtime.seal, tenant, endpoint["id"], 2)


async def test_a_webhook_test_returns_the_receivers_status(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    asked = asyncio.create_task(client.post(f"{path}/test"))
    due = await api.until(client, f"{path}/deliveries", lambda page: page["data"])
    delivery_id = due["data"][0]["id"]
    ended = EndDelivery(
        report=DeliveryReport(delivery_id=delivery_id, outcome="gave_up", attempts=1, status=500)
    )
    await api.send(ACCOUNT, tenant, ended)
    assert (await asked).json() == {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": endpoint["id"],
        "event_type": "fine_tuning.job.succeeded",
        "delivery_id": delivery_id,
        "status_code": 500,
        "success": False,
        "outcome": "gave_up",
    }


async def test_deliveries_are_repeated_by_id_or_by_time(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    for number in range(3):
        announced = Announce(
            event=WebhookEvent(
                event_id=f"evt_{number}",
                event_type="fine_tuning.job.succeeded",
                object_id=f"ftjob-{number}",
                created_at=1_000,
            )
        )
        await api.send(ACCOUNT, tenant, announced)
    due = await api.until(client, f"{path}/deliveries", lambda page: len(page["data"]) == 3)
    ids = {item["event"]["id"]: item["id"] for item in due["data"]}
    outcomes: dict[str, DeliveryOutcome] = {"evt_0": "delivered", "evt_1": "gave_up"}
    for event, outcome in outcomes.items():
        report = DeliveryReport(delivery_id=ids[event], outcome=outcome, attempts=1)
        await api.send(ACCOUNT, tenant, EndDelivery(report=report))
    await api.until(
        client,
        f"{path}/deliveries",
        lambda page: sum(item["outcome"] != "pending" for item in page["data"]) == 2,
    )
    by_time = (await client.post(f"{path}/redeliver", json={"after": 0})).json()["data"]
    assert [item["event"]["id"] for item in by_time] == ["evt_1"]  # open and delivered ones are not
    assert by_time[0]["id"] != ids["evt_1"]
    body = {"delivery_ids": [ids["evt_0"]]}
    by_id = (await client.post(f"{path}/redeliver", json=body)).json()["data"]
    assert [item["event"]["id"] for item in by_id] == ["evt_0"]
    unknown = await client.post(f"{path}/redeliver", json={"delivery_ids": ["del_x"]})
    assert unknown.status_code == 404
    assert (await client.post(f"{path}/redeliver", json={})).status_code == 400


async def test_bad_endpoints_are_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    cases = (
        ({**BODY, "url": "ftp://example.com"}, "url"),
        ({**BODY, "event_types": []}, "event_types"),
        ({**BODY, "event_types": ["fine_tuning.job.exploded"]}, "event_types"),
        ({"event_types": BODY["event_types"]}, "url"),
    )
    for body, param in cases:
        answer = await client.post("/v1/webhook_endpoints", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["param"] == param


async def test_deleting_and_other_tenants(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    endpoint = (await owner.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    assert (await other.get(path)).status_code == 404
    assert (await other.get(f"{path}/deliveries")).status_code == 404
    assert (await other.delete(path)).status_code == 404
    gone = await owner.delete(path)
    assert gone.json() == {
        "id": endpoint["id"],
        "object": "webhook_endpoint.deleted",
        "deleted": True,
    }
    assert (await owner.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("https://example.com/h", False),
        ("mailto:ops@example.com", False),
        ("http://example.com/h", True),
        ("https://127.0.0.1/h", True),
        ("https://10.1.2.3:8443/h", True),
        ("https://[::1]/h", True),
        ("https://[fd00::1]/h", True),
        ("https://localhost/h", True),
        ("https://ci.internal/h", True),
        ("https://93.184.216.34/h", False),
    ],
)
async def test_first_hour_17_a_private_receiver_is_warned_of_when_created(
    api: ControlPlane, url: str, is_warned: bool
) -> None:
    client = await api.tenant()
    created = (await client.post("/v1/webhook_endpoints", json={"url": url})).json()
    listed = (await client.get(f"/v1/webhook_endpoints/{created['id']}")).json()
    assert listed["warning"] == created["warning"]
    assert ("TUNERY_NOTIFIER_ALLOW_PRIVATE=1" in (created["warning"] or "")) == is_warned


async def test_first_hour2_u22_where_the_notifier_may_reach_private_addresses_nothing_is_warned_of(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERY_NOTIFIER_ALLOW_PRIVATE", "1")
    assert GatewaySettings().allow_private
    client = await api.tenant()
    monkeypatch.setattr(api.deps.settings, "allow_private", True)
    for url in ("http://127.0.0.1:9/h", "https://ci.internal/h"):
        created = (await client.post("/v1/webhook_endpoints", json={"url": url})).json()
        assert created["warning"] is None


async def test_an_address_is_confirmed_with_the_code_that_only_the_notifier_shows(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.accounts.webhook_routes.CONFIRMATION_MS_MAX", 50)
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"url": "mailto:ops@acme.example"}
    answer = await client.post("/v1/webhook_endpoints", json=body)
    created = answer.json()
    path = f"/v1/webhook_endpoints/{created['id']}"
    code = confirmation_code(api.runtime.seal, tenant, created["id"], "ops@acme.example")
    assert code not in answer.text
    assert created["confirmed"] is False
    assert f"tunery webhook confirm {created['id']}" in created["warning"]
    assert (await client.post(f"{path}/test")).status_code == 409
    deliveries = (await client.get(f"{path}/deliveries")).json()["data"]
    assert [item["event"]["type"] for item in deliveries] == [
        "webhook_endpoint.confirmation_requested"
    ]
    wrong = await client.post(f"{path}/confirm", json={"code": "a" * 24})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "code")
    right = await client.post(f"{path}/confirm", json={"code": f" {code.upper()} "})
    assert (right.json()["confirmed"], right.json()["warning"]) == (True, None)
    changed = (await client.post(path, json={"url": "mailto:other@acme.example"})).json()
    assert changed["confirmed"] is False
    stale = await client.post(f"{path}/confirm", json={"code": code})
    assert stale.status_code == 400


async def test_a_code_that_cannot_be_mailed_is_reported_with_what_to_do(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"url": "mailto:ops@acme.example"}
    created = asyncio.create_task(client.post("/v1/webhook_endpoints", json=body))
    listed = await api.until(client, "/v1/webhook_endpoints", lambda page: page["data"])
    path = f"/v1/webhook_endpoints/{listed['data'][0]['id']}"
    due = (await client.get(f"{path}/deliveries")).json()["data"][0]["id"]
    refused = DeliveryReport(delivery_id=due, outcome="refused", attempts=1)
    await api.send(ACCOUNT, tenant, EndDelivery(report=refused))
    warning = (await created).json()["warning"]
    assert "TUNERY_NOTIFIER_SMTP_URL" in warning
    assert "TUNERY_NOTIFIER_SMTP_DOMAINS" in warning
    assert (await client.get(path)).json()["warning"] == warning
