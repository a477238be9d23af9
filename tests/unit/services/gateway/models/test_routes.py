"""Models over HTTP: base and fine-tuned, stages by compare-and-swap, files by URL."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import httpx
from msgspec.json import encode

from schemas.model import Base, Lineage, RecordPublished, RegisterVersion, Verdict, VersionTerms
from schemas.topics import MODEL
from schemas.training import BlobFile, MethodName
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.models.test_base_folders import a_base
from tests.unit.tunery.plan.samples import PROOF

__all__ = ["engine"]
FILE = BlobFile(name="adapter_model.safetensors", blob="t/x/a", sha256="cd" * 32, bytes=10)


async def version(
    api: ControlPlane,
    client: httpx.AsyncClient,
    name: str,
    verdict: Verdict = "pass",
    job_id: str | None = None,
    files: tuple[BlobFile, ...] = (FILE,),
    base: Base = BASE,
    method: MethodName = "supervised",
) -> str:
    """A published version, as the registry makes it."""
    tenant = client.headers["x-tenant"]
    model_id = f"ft:tiny-llama:{tenant}:{name}:12345678"
    lineage = Lineage(
        job_id=job_id or f"ftjob-{name}",
        base_id=base.base_id,
        base_sha256=base.sha256,
        dataset_version="v",
        training_sha256="ab" * 32,
        config_sha256="ab" * 32,
        steps=10,
        verdict=verdict,
        scores_sha256="ab" * 32,
        method=method,
    )
    register = RegisterVersion(
        adapter=files,
        terms=VersionTerms(model_id=model_id, series="tiny-llama/line", lineage=lineage),
    )
    await api.send(MODEL, tenant, register)
    await api.send(MODEL, tenant, RecordPublished(model_id=model_id, files=files))
    await api.until(client, f"/v1/models/{model_id}", lambda shown: "id" in shown)
    return model_id


async def test_base_models_and_versions_are_listed(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id = await version(api, client, "one")
    listed = (await client.get("/v1/models")).json()["data"]
    listed = [item for item in listed if item["type"] != "alias"]
    assert listed[-1]["id"] == model_id
    (base,) = [item for item in listed[:-1] if item["id"] == "tiny-llama"]
    assert (base["owned_by"], {item["type"] for item in listed[:-1]}) == ("tunery", {"base"})
    assert (listed[-1]["parent"], listed[-1]["stage"]) == ("tiny-llama", "dev")
    tuned = (await client.get("/v1/models", params={"type": "fine-tuned"})).json()["data"]
    assert [item["id"] for item in tuned] == [model_id]
    none = await client.get("/v1/models", params={"base_model": "another"})
    assert none.json()["data"] == []
    shown = (await client.get(f"/v1/models/{model_id}")).json()
    assert shown["lineage"]["base_sha256"] == BASE.sha256


async def test_promotion_needs_the_current_holder_as_expected(api: ControlPlane) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    body = {"stage": "production", "expected": None}
    promoted = await client.post(f"/v1/models/{first}/promote", json=body)
    assert promoted.json()["stage"] == "production"
    conflict = await client.post(f"/v1/models/{second}/promote", json=body)
    assert conflict.status_code == 409
    assert conflict.headers["x-should-retry"] == "false"
    assert conflict.json()["error"]["code"] == "stage_conflict"
    swapped = await client.post(
        f"/v1/models/{second}/promote", json={"stage": "production", "expected": first}
    )
    assert swapped.json()["stage"] == "production"
    assert (await client.get(f"/v1/models/{first}")).json()["stage"] == "dev"
    back = await client.post(f"/v1/models/{second}/rollback", json={"stage": "production"})
    assert (back.json()["id"], back.json()["stage"]) == (first, "production")


async def test_a_version_names_the_one_to_which_a_roll_back_returns_its_stage(
    api: ControlPlane,
) -> None:
    """After any promotions and roll-backs the API does what the version's `former` says."""
    client = await api.tenant()
    versions = [await version(api, client, name) for name in "abc"]
    holders: dict[str, str | None] = {"staging": None, "production": None}
    draw, seen = Random(7), Counter[bool]()
    for _ in range(40):
        stage = draw.choice([*holders])
        holder, chosen = holders[stage], draw.choice(versions)
        if holder is None or (holder != chosen and draw.random() < 0.5):
            body = {"stage": stage, "expected": holder}
            moved = await client.post(f"/v1/models/{chosen}/promote", json=body)
        else:
            former = (await client.get(f"/v1/models/{holder}")).json()["former"]
            seen[former is None] += 1
            moved = await client.post(f"/v1/models/{holder}/rollback", json={"stage": stage})
            assert moved.json().get("id") == former
            assert moved.status_code == (409 if former is None else 200)
        if moved.is_success:
            moved_id = moved.json()["id"]
            holders = {name: None if who == moved_id else who for name, who in holders.items()}
            holders[stage] = moved_id
    assert min(seen.values()) >= 3, "both came, and often"


async def test_first_hour_low_only_the_holder_of_a_stage_is_rolled_back(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id = await version(api, client, "never-promoted")
    refused = await client.post(f"/v1/models/{model_id}/rollback", json={"stage": "production"})
    assert refused.status_code == 409
    error = refused.json()["error"]
    assert error["param"] == "stage"
    assert error["message"].startswith(f"{model_id} does not hold production")
    assert "expected" not in error["message"], "it is no field of a rollback"


async def test_a_quarantined_version_is_downloadable_and_not_promotable(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id = await version(api, client, "bad", verdict="block")
    assert (await client.get(f"/v1/models/{model_id}")).json()["quarantined"] is True
    refused = await client.post(f"/v1/models/{model_id}/promote", json={"stage": "staging"})
    assert refused.status_code == 409
    adapter = (await client.get(f"/v1/models/{model_id}/adapter")).json()
    assert adapter["files"][0]["sha256"] == FILE.sha256
    assert adapter["files"][0]["url"].startswith("http://api/v1/downloads/")


async def test_a_model_says_whether_it_is_an_adapter_or_whole(api: ControlPlane) -> None:
    client = await api.tenant()
    weights = BlobFile(name="model.safetensors", blob="t/x/w", sha256="ef" * 32, bytes=20)
    shown = {}
    for files in ((FILE,), (weights,)):
        model_id = await version(api, client, files[0].name[:5], files=files)
        for path in ("", "/adapter"):
            model = (await client.get(f"/v1/models/{model_id}{path}")).json()
            shown[files[0].name, path] = model["format"]
    assert shown == {
        (FILE.name, ""): "peft",
        (FILE.name, "/adapter"): "peft",
        (weights.name, ""): "transformers",
        (weights.name, "/adapter"): "transformers",
    }


async def test_deleting_a_version(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id = await version(api, client, "gone")
    answer = await client.delete(f"/v1/models/{model_id}")
    assert answer.json() == {"id": model_id, "object": "model", "deleted": True}
    assert (await client.get(f"/v1/models/{model_id}")).status_code == 404
    assert [item["id"] for item in (await client.get("/v1/models")).json()["data"]].count(
        model_id
    ) == 0
    (listed,) = (await client.get("/v1/models", params={"deleted": True})).json()["data"]
    assert (listed["id"], listed["restorable_until"] > listed["created"]) == (model_id, True)
    base = await client.delete("/v1/models/tiny-llama")
    assert base.status_code == 400


async def test_a_deleted_version_is_restored_and_erased(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    model_id = await version(api, client, "back", verdict="block")
    path = f"/v1/models/{model_id}"
    before = (await client.get(path)).json()
    await client.delete(path)
    assert (await other.post(f"{path}/restore")).status_code == 404
    assert (await client.post(f"{path}/restore")).json() == before
    history = (await client.get(f"{path}/history")).json()["data"]
    assert [entry["change"] for entry in history] == ["published", "deleted", "restored"]
    await client.delete(path)
    erased = await client.delete(path, params={"erase": True})
    assert erased.json()["deleted"] is True
    for method in ("post", "delete"):
        gone = await client.request(method, f"{path}/restore" if method == "post" else path)
        assert gone.status_code == 404
    assert (await client.get("/v1/models", params={"deleted": True})).json()["data"] == []


async def test_another_tenants_version_does_not_exist(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    model_id = await version(api, owner, "mine")
    for path in (f"/v1/models/{model_id}", f"/v1/models/{model_id}/adapter"):
        assert (await other.get(path)).status_code == 404
    promote = await other.post(f"/v1/models/{model_id}/promote", json={"stage": "staging"})
    rollback = await other.post(f"/v1/models/{model_id}/rollback", json={"stage": "staging"})
    assert (promote.status_code, rollback.status_code) == (404, 404)
    assert (await other.delete(f"/v1/models/{model_id}")).status_code == 404


async def test_a_base_needs_a_real_folder_and_the_admin_scope(api: ControlPlane) -> None:
    client = await api.tenant()
    body = {"id": "x", "path": "/nowhere/at/all"}
    assert (await client.post("/v1/bases", json=body)).status_code == 403
    answer = await api.api.post("/v1/bases", json=body)
    assert answer.status_code == 400
    assert "/nowhere/at/all/config.json does not exist" in answer.json()["error"]["message"]


async def test_first_hour_s12_a_base_has_other_names(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/bases/{BASE.base_id}/aliases"
    names = ["gpt-4o-mini-2024-07-18", "gpt-4o-mini"]
    assert (await client.post(path, json={"aliases": names})).status_code == 403
    assert (await api.api.post(path, json={"aliases": names})).json()["aliases"] == names
    shown = (await client.get("/v1/models/gpt-4o-mini")).json()
    assert (shown["id"], shown["sha256"], shown["aliases"]) == (BASE.base_id, BASE.sha256, names)
    for wrong in ([BASE.base_id], ["a b"], ["ft:x"]):
        refused = await api.api.post(path, json={"aliases": wrong})
        assert (refused.status_code, refused.json()["error"]["param"].split(".")[0]) == (
            400,
            "aliases",
        )
    unknown = await api.api.post("/v1/bases/none/aliases", json={"aliases": []})
    assert unknown.status_code == 404
    assert (await api.api.post(path, json={"aliases": []})).json()["aliases"] == []
    assert (await client.get("/v1/models/gpt-4o-mini")).status_code == 404


async def test_first_hour2_u24_names_that_answer_are_listed(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    """Programs that look before they ask show what is listed."""
    client = await api.tenant()
    path = f"/v1/bases/{BASE.base_id}/aliases"
    await api.api.post(path, json={"aliases": ["gpt-4.1-mini"]})
    held, other = await version(api, client, "held"), await version(api, client, "other")
    stage = {"stage": "production", "expected": None}
    await client.post(f"/v1/models/{held}/promote", json=stage)
    listed = (await client.get("/v1/models")).json()["data"]
    names = {item["id"]: item["parent"] for item in listed if item["type"] == "alias"}
    in_production = f"{held.rpartition(':')[0]}:production"
    assert names.items() >= {("gpt-4.1-mini", BASE.base_id), (in_production, held)}
    assert [name for name, parent in names.items() if parent == other] == []
    assert len({item["id"] for item in listed}) == len(listed)
    for name in ("gpt-4.1-mini", in_production):
        answer = await client.post(
            "/v1/chat/completions",
            json={"model": name, "messages": [{"role": "user", "content": "Hi"}]},
        )
        assert answer.status_code == 200, answer.text
    assert [asked.model.base_id for asked in engine.asked] == [BASE.base_id] * 2
    alone = await client.get("/v1/models", params={"type": "alias"})
    assert {item["id"] for item in alone.json()["data"]} == names.keys()
    for kind in ("base", "fine-tuned"):
        of_kind = (await client.get("/v1/models", params={"type": kind})).json()["data"]
        assert {item["type"] for item in of_kind} == {kind}
    await api.api.post(path, json={"aliases": []})


async def test_first_hour_s12_a_name_belongs_to_one_base(api: ControlPlane, tmp_path: Path) -> None:
    other = {"id": "other", "path": str(a_base(tmp_path / "other")), "licence": "mit"}
    added = await api.api.post("/v1/bases", json={**other, "aliases": ["mine"], "shared": True})
    assert (added.status_code, added.json()["aliases"]) == (201, ["mine"])
    path = f"/v1/bases/{BASE.base_id}/aliases"
    refused = await api.api.post(path, json={"aliases": ["mine"]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "aliases")
    assert "'mine' is already a name of other" in refused.json()["error"]["message"]
    again = (await api.api.post("/v1/bases", json=other)).json()
    assert (again["aliases"], again["shared"]) == (["mine"], True)
    as_id = await api.api.post("/v1/bases", json={**other, "id": "mine"})
    assert as_id.status_code == 400


async def test_review2_f1_a_job_that_its_base_cannot_do_is_refused_at_submission(
    api: ControlPlane, tmp_path: Path
) -> None:
    proof = json.loads(encode(PROOF))
    body = {"id": "org/hybrid", "path": str(a_base(tmp_path / "hybrid")), "licence": "mit"}
    assert (await api.api.post("/v1/bases", json=body)).json()["proof"] is None
    added = await api.api.post("/v1/bases", json=body | {"proof": proof})
    assert added.json()["proof"] == proof
    again = await api.api.post("/v1/bases", json=body)  # what is not given stays as it is
    assert again.json()["proof"] == proof
    client, file_id = await ready(api)
    assert (await client.get("/v1/models/org/hybrid")).json()["proof"] == proof
    job = {"model": "org/hybrid", "training": {"packing": True}}
    refused = await submit(client, file_id, **job, lora={"target_modules": ["out_proj"]})
    assert refused.status_code == 400
    message = refused.json()["error"]["message"]
    assert "training.packing: documents of a packed row see each other in org/hybrid" in message
    assert "no adapter can be on out_proj of org/hybrid; choose among in_proj, q_proj" in message


async def test_bad_input_a_proof_of_other_fields_is_refused(
    api: ControlPlane, tmp_path: Path
) -> None:
    body = {"id": "org/other", "path": str(a_base(tmp_path / "other")), "licence": "mit"}
    known = json.loads(encode(PROOF))
    for proof in ({**known, "more": 1}, {"packs": True}, {**known, "adaptations": ["none"]}):
        answer = await api.api.post("/v1/bases", json=body | {"proof": proof})
        assert answer.status_code == 400, answer.text
