"""Routes of gate policies, and of people who overrule a verdict."""

from services.gateway.views.tables.models import MODELS
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.models.test_routes import version

OWN = {
    "blocking": ["capability"],
    "alpha": 0.01,
    "drop_max": 0.02,
    "gain_min": 0.1,
    "benchmarks": [],
    "refusal_min": 0,
    "looks": [0.5, 1],
}
RELEASE = {"reason": "only poems are asked of it", "name": "Ada"}


async def test_a_policy_holds_for_its_base_model_until_it_is_removed(api: ControlPlane) -> None:
    client = await api.tenant()
    path = "/v1/gate/policies"
    (gates_own,) = (await client.get(path)).json()["data"]
    assert (gates_own["id"], gates_own["blocking"]) == ("default", ["capability", "production"])
    assert (gates_own["alpha"], gates_own["drop_max"], gates_own["gain_min"]) == (0.05, None, 0.05)
    answer = await client.post(path, json={"base_model": BASE.base_id, **OWN})
    policy = {"id": BASE.base_id, "object": "gate.policy", **OWN}
    assert (answer.status_code, answer.json()) == (200, policy)
    assert (await client.get(path)).json()["data"] == [gates_own, policy]
    assert len((await (await api.tenant()).get(path)).json()["data"]) == 1, "of another tenant"
    gone = await client.delete(f"{path}/{BASE.base_id}")
    assert gone.json() == {"id": BASE.base_id, "object": "gate.policy", "deleted": True}
    assert (await client.delete(f"{path}/{BASE.base_id}")).status_code == 404
    assert (await client.delete(f"{path}/default")).status_code == 404


async def test_a_policy_out_of_range_is_refused_by_name(api: ControlPlane) -> None:
    client = await api.tenant()
    for field, value in {"alpha": 0, "drop_max": 0.6, "gain_min": -1, "looks": [0.5]}.items():
        refused = await client.post("/v1/gate/policies", json={field: value})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].split(".")[0] == field
    unknown = await client.post("/v1/gate/policies", json={"base_model": "none"})
    assert unknown.status_code == 404


async def test_a_blocked_version_is_released_with_a_reason_and_a_name(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id = await version(api, client, "worse", "block")
    path = f"/v1/models/{model_id}"
    promoted = await client.post(f"{path}/promote", json={"stage": "staging"})
    assert (promoted.status_code, "gate" in promoted.text) == (409, True)
    released = (
        await client.post(f"{path}/quarantine", json={"quarantined": False, **RELEASE})
    ).json()
    assert (released["quarantined"], released["verdict"]) == (False, "block")
    shown = (await client.get(path)).json()["quarantine"]
    assert (shown["reason"], shown["name"]) == (RELEASE["reason"], RELEASE["name"])
    row = await api.deps.views.first(MODELS, {"id": model_id})
    assert row is not None
    assert b"poems" not in bytes(row.quarantine_cause.ciphertext if row.quarantine_cause else b"")
    assert (await client.post(f"{path}/promote", json={"stage": "staging"})).status_code == 200
    held = await client.post(f"{path}/quarantine", json={"quarantined": True, **RELEASE})
    assert (held.status_code, "holds staging" in held.text) == (409, True)


async def test_a_version_is_quarantined_by_a_person(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    path = f"/v1/models/{await version(api, client, 'fine')}"
    body = {"quarantined": True, **RELEASE}
    assert (await other.post(f"{path}/quarantine", json=body)).status_code == 404
    assert (await client.post(f"{path}/quarantine", json=body)).json()["quarantined"] is True
    refused = await client.post(f"{path}/promote", json={"stage": "production"})
    assert refused.status_code == 409
    for left_out in ("reason", "name"):
        short = {key: value for key, value in body.items() if key != left_out}
        assert (await client.post(f"{path}/quarantine", json=short)).status_code == 400
