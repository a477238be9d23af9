"""Webhooks: a secret is shown once, deliveries are sent again, one or all that failed."""

from schemas.account import Announce, DeliveryReport, EndDelivery, WebhookEvent
from schemas.topics import ACCOUNT
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane

FORM = {
    "name": "ci",
    "url": "https://example.com/hook",
    "event_types": ["fine_tuning.job.succeeded"],
}


async def test_an_endpoint_its_deliveries_and_redelivery(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert "No endpoints yet" in (await browser.get("/console/webhooks")).text
        created = await browser.post("/console/webhooks", data=FORM, headers=OWN_SITE)
        assert "it is not shown again" in created.text
        (endpoint,) = (await client.get("/v1/webhook_endpoints")).json()["data"]
        path = f"/console/webhooks/{endpoint['id']}"
        assert "Nothing has been sent yet" in (await browser.get(path)).text
        event = WebhookEvent(
            event_id="evt_1",
            event_type="fine_tuning.job.succeeded",
            object_id="ftjob-1",
            created_at=1_000,
        )
        await api.send(ACCOUNT, tenant, Announce(event=event))
        deliveries = f"/v1/webhook_endpoints/{endpoint['id']}/deliveries"
        sent = (await api.until(client, deliveries, lambda page: page["data"]))["data"][0]
        report = DeliveryReport(delivery_id=sent["id"], outcome="gave_up", attempts=9, status=500)
        await api.send(ACCOUNT, tenant, EndDelivery(report=report))
        await api.until(client, deliveries, lambda page: page["data"][0]["ended_at"])
        shown = await browser.get(path)
        assert "gave up" in shown.text
        assert ">500<" in shown.text
        for form in ({}, {"delivery": sent["id"]}):
            again = await browser.post(f"{path}/redeliver", data=form, headers=OWN_SITE)
            assert "1 delivery is sent again" in again.text
        assert (await browser.post(f"{path}/paint", headers=OWN_SITE)).status_code == 404
        gone = await browser.post(f"{path}/delete", headers=OWN_SITE)
        assert gone.headers["location"] == "/console/webhooks"
    assert (await client.get("/v1/webhook_endpoints")).json()["data"] == []


async def test_a_new_secret_is_shown_to_who_may_not_list_endpoints(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "maker", "scopes": ["webhooks.write"]}
    maker = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
    async with signed_in(console_of(api), maker) as browser:
        created = await browser.post("/console/webhooks", data=FORM, headers=OWN_SITE)
        assert created.status_code == 200, created.text
        assert "it is not shown again" in created.text
        assert "https://example.com/hook" in created.text


async def test_a_bad_address_says_what_is_wrong(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        form = {**FORM, "url": "<b>nowhere"}
        answer = await browser.post("/console/webhooks", data=form, headers=OWN_SITE)
        assert answer.status_code == 400
        assert "url" in answer.text
        assert "<b>nowhere" not in answer.text
