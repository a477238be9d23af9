"""Benchmarks through the routes: added by the operator, named by tenants, pinned by jobs."""

from hashlib import sha256

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.tunery.benchmarks.tasks import choices_task, safety_task

PATH = "/v1/gate/benchmarks"


async def test_an_operator_adds_a_benchmark_and_everybody_sees_it(api: ControlPlane) -> None:
    content = choices_task()
    assert (await (await api.tenant()).put(f"{PATH}/arc", content=content)).status_code == 403
    added = await api.api.put(f"{PATH}/arc", content=content)
    assert added.status_code == 201, added.text
    benchmark = added.json()
    assert (benchmark["id"], benchmark["task"], benchmark["items"]) == ("arc", "arc", 24)
    assert benchmark["sha256"] == sha256(content).hexdigest()
    assert (await api.api.put(f"{PATH}/arc", content=content)).json() == benchmark
    listed = (await (await api.tenant()).get(PATH)).json()["data"]
    assert benchmark in listed
    other = await api.api.put(f"{PATH}/arc", content=choices_task(30))
    assert (other.status_code, "choose another name" in other.text) == (409, True)


async def test_what_is_no_benchmark_is_refused_with_its_line(api: ControlPlane) -> None:
    wrong = await api.api.put(f"{PATH}/wrong", content=b"x\n")
    assert (wrong.status_code, "line 1 is no header" in wrong.text) == (400, True)
    assert (await api.api.put(f"{PATH}/ARC", content=choices_task())).status_code == 400
    listed = (await api.api.get(PATH)).json()["data"]
    assert "wrong" not in {benchmark["id"] for benchmark in listed}


async def test_a_policy_and_a_job_name_benchmarks_and_the_job_has_their_hashes(
    api: ControlPlane,
) -> None:
    for name, content in (("arc", choices_task()), ("xs", safety_task())):
        assert (await api.api.put(f"{PATH}/{name}", content=content)).is_success
    client, file_id = await ready(api)
    missing = await client.post("/v1/gate/policies", json={"benchmarks": ["none"]})
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "benchmarks")
    policy = await client.post(
        "/v1/gate/policies", json={"benchmarks": ["xs"], "refusal_min": 0.9, "blocking": ["safety"]}
    )
    assert (policy.json()["benchmarks"], policy.json()["refusal_min"]) == (["xs"], 0.9)
    plain = (await submit(client, file_id)).json()
    assert plain["eval"]["benchmarks"] == ["xs"]
    asked = {"benchmarks": ["arc", "xs"], "benchmark_items": 100}
    both = (await submit(client, file_id, seed=3, eval=asked)).json()
    assert (both["eval"]["benchmarks"], both["eval"]["benchmark_items"]) == (["xs", "arc"], 100)
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{both['id']}/recipe")).json()["recipe"]
    assert recipe["eval"]["benchmarks"] == ["xs", "arc"]
    for wrong, param in (
        ({"benchmarks": ["none"]}, "eval.benchmarks"),
        ({"benchmarks": "arc"}, "eval.benchmarks"),
        ({"benchmarks": ["arc"], "benchmark_items": 3}, "eval.benchmark_items"),
    ):
        refused = await submit(client, file_id, eval=wrong)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_benchmarks_are_part_of_the_estimate(api: ControlPlane) -> None:
    await api.api.put(f"{PATH}/xs", content=safety_task())
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    path = "/v1/fine_tuning/jobs/estimate"
    plain = (await client.post(path, json=body)).json()
    longer = (await client.post(path, json={**body, "eval": {"benchmarks": ["xs"]}})).json()
    assert longer["eval_gpu_ms"] > plain["eval_gpu_ms"]


async def test_a_benchmark_is_removed_once_no_policy_names_it(api: ControlPlane) -> None:
    path = f"{PATH}/gone"
    assert (await api.api.delete(path)).status_code == 404
    assert (await api.api.put(path, content=choices_task())).is_success
    client = await api.tenant()
    assert (await client.delete(path)).status_code == 403
    policy = {"benchmarks": ["gone"]}
    assert (await client.post("/v1/gate/policies", json=policy)).is_success
    refused = await api.api.delete(path)
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "name")
    assert "The policy 'default' names benchmark 'gone'" in refused.json()["error"]["message"]
    assert (await client.delete("/v1/gate/policies/default")).is_success
    removed = await api.api.delete(path)
    assert removed.json() == {"id": "gone", "object": "gate.benchmark", "deleted": True}
    assert "gone" not in {entry["id"] for entry in (await client.get(PATH)).json()["data"]}
    assert (await client.post("/v1/gate/policies", json=policy)).status_code == 404
    assert (await api.api.put(path, content=choices_task(30))).is_success, "the name is free"
