"""Webhook endpoints over HTTP."""

from schemas.account import Announce, EndDelivery
from schemas.topics import ACCOUNT
from tests.unit.services.gateway.town import Town
from tunery.runtime.seal.webhooks import webhook_secret

BODY = {
    "name": "ci",
    "url": "https://example.com/hook",
    "event_types": ["fine_tuning.job.succeeded"],
}


async def test_the_secret_is_shown_once_and_is_the_notifiers(api: Town) -> None:
    client = await api.tenant()
    made = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    tenant = client.headers["x-tenant"]
    assert made["signing_secret"] == webhook_secret(api.runtime.seal, tenant, made["id"], 1)
    assert made["url"] == BODY["url"]
    shown = (await client.get(f"/v1/webhook_endpoints/{made['id']}")).json()
    assert "signing_secret" not in shown
    listed = (await client.get("/v1/webhook_endpoints")).json()["data"]
    assert listed == [shown]
    rows = await api.runtime.store.rows("endpoints")
    assert "example.com" not in repr(rows)


async def test_deliveries_tell_what_came_of_an_event(api: Town) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    made = (await client.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{made['id']}/deliveries"
    announced = Announce(
        event_id="evt_1",
        event_type="fine_tuning.job.succeeded",
        object_id="ftjob-1",
        created_at=1_000,
    )
    await api.send(ACCOUNT, tenant, announced)
    pending = await api.until(client, path, lambda found: found["data"])
    delivery = pending["data"][0]
    assert delivery["outcome"] == "pending"
    assert delivery["event"]["data"] == {"id": "ftjob-1"}
    ended = EndDelivery(delivery_id=delivery["id"], outcome="delivered", attempts=2, status=204)
    await api.send(ACCOUNT, tenant, ended)
    done = await api.until(client, path, lambda found: found["data"][0]["ended_at"])
    assert done["data"][0]["outcome"] == "delivered"
    assert (done["data"][0]["attempts"], done["data"][0]["status_code"]) == (2, 204)


async def test_bad_endpoints_are_refused(api: Town) -> None:
    client = await api.tenant()
    cases = (
        ({**BODY, "url": "ftp://example.com"}, "url"),
        ({**BODY, "event_types": []}, "event_types"),
        ({**BODY, "event_types": ["fine_tuning.job.exploded"]}, "event_types"),
        ({"url": BODY["url"]}, "event_types"),
    )
    for body, param in cases:
        answer = await client.post("/v1/webhook_endpoints", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["param"] == param


async def test_deleting_and_other_tenants(api: Town) -> None:
    owner, other = await api.tenant(), await api.tenant()
    made = (await owner.post("/v1/webhook_endpoints", json=BODY)).json()
    path = f"/v1/webhook_endpoints/{made['id']}"
    assert (await other.get(path)).status_code == 404
    assert (await other.get(f"{path}/deliveries")).status_code == 404
    assert (await other.delete(path)).status_code == 404
    gone = await owner.delete(path)
    assert gone.json() == {
        "id": made["id"],
        "object": "webhook_endpoint.deleted",
        "deleted": True,
    }
    assert (await owner.get(path)).status_code == 404
