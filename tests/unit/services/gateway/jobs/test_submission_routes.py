"""Estimates and submissions over HTTP."""

from msgspec.structs import replace

from schemas.pool import RegisterNode
from schemas.streams import PARTITIONS
from schemas.topics import JOB, POOL
from services.gateway.views.projections.messages import SAME_FILE
from simulator.control_plane.samples import node
from tests.unit.services.gateway.control_plane import ROW, ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_the_estimate_records_nothing(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    answer = await client.post("/v1/fine_tuning/jobs/estimate", json=body)
    matching = answer.json()
    assert matching["estimation_available"] is True
    assert matching["trained_tokens"] >= 20_000
    assert matching["amount_max_micro"] >= matching["amount_micro"] > 0
    assert matching["hyperparameters"]["n_epochs"] >= 1
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []
    fresh = await api.upload(client)
    early = await client.post(
        "/v1/fine_tuning/jobs/estimate", json={**body, "training_file": fresh["id"]}
    )
    assert early.json()["estimation_available"] is False
    assert early.json()["unavailable_reason"] == "train_file_not_validated"


async def test_a_dry_run_is_the_estimate_and_makes_no_job(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    dry = (await submit(client, file_id, dry_run=True)).json()
    assert dry["object"] == "fine_tuning.job.estimate"
    assert dry["allowed_to_proceed"] is True
    body = {"model": "tiny-llama", "training_file": file_id, "budget": {"max_amount_micro": 1}}
    poor = (await client.post("/v1/fine_tuning/jobs/estimate", json=body)).json()
    assert poor["allowed_to_proceed"] is False
    assert "Raise the budget" in poor["refusal"]
    refused = await client.post("/v1/fine_tuning/jobs", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "budget_too_small"
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []


async def test_first_hour_02_an_estimate_is_refused_as_the_submission_is(
    api: ControlPlane,
) -> None:
    """Under a key with a cap, the estimate said that the job may proceed."""
    client, file_id = await ready(api)
    tenant = client.headers["x-tenant"]
    path = f"/v1/tenants/{tenant}/keys"
    poor = api.client((await api.api.post(path, json={"spend_cap_micro": 1})).json()["key"], tenant)
    small = {"budget": {"max_amount_micro": 1}}
    many = await api.tenant(limits={"concurrency": 1, "soft_gpu_ms": 10**9, "hard_gpu_ms": 10**9})
    other = (await api.upload(many))["id"]
    await api.validated(many, other)
    assert (await submit(many, other, seed=1)).status_code == 200  # all that it may have
    for caller, file, body, code in (
        (poor, file_id, {}, "spend_cap_exceeded"),
        (client, file_id, small, "budget_too_small"),
        (many, other, {}, "concurrency_limit_exceeded"),
    ):
        shown = (await submit(caller, file, dry_run=True, **body)).json()
        refused = (await submit(caller, file, **body)).json()["error"]
        assert (shown["refusal_code"], refused["code"]) == (code, code)
        assert shown["refusal"] == refused["message"]
        assert shown["allowed_to_proceed"] is False
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []


async def test_first_hour_22_all_but_the_file_is_checked_before_it_is_uploaded(
    api: ControlPlane,
) -> None:
    """A body with a wrong field left a file behind."""
    client, file_id = await ready(api)
    path, right = "/v1/fine_tuning/jobs/estimate", {"model": "tiny-llama"}
    shown = (await client.post(path, json=right)).json()
    assert shown["unavailable_reason"] == "train_file_not_uploaded"
    for body, param in (
        ({"lora": {"rnk": 8}}, "lora.rnk"),
        ({"model": "none"}, "model"),
        ({"validation_file": "file-none"}, "validation_file"),
        ({"training": {"n_epochs": 0}}, "training.n_epochs"),
    ):
        error = (await client.post(path, json={**right, **body})).json()["error"]
        assert error["param"] == param
        assert "training_file" not in error["message"]
    without = await client.post("/v1/fine_tuning/jobs", json=right)
    assert without.json()["error"]["param"] == "training_file"
    assert [file["id"] for file in (await client.get("/v1/files")).json()["data"]] == [file_id]


async def test_first_hour_21_equal_bytes_under_two_ids_are_warned_of(api: ControlPlane) -> None:
    """Only the same id was."""
    client, file_id = await ready(api)
    copy, other = await api.upload(client), await api.upload(client, ROW * 21)
    for held_out, is_warned in ((copy, True), (other, False)):
        await api.validated(client, held_out["id"])
        job = (await submit(client, file_id, validation_file=held_out["id"], seed=1)).json()
        events = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/events")).json()["data"]
        assert (SAME_FILE in [event["message"] for event in events]) == is_warned


async def test_training_m5_a_job_that_no_node_has_the_memory_for_is_refused() -> None:
    """Finding M5: it waited for ever."""
    async with control_plane() as plane:  # a pool in which no other test has nodes
        client, file_id = await ready(plane)
        for node_id, gigabytes, status in (("small", 1, 400), ("large", 8, 200)):
            described = replace(node(node_id, "a-1", 1).node, memory_bytes=gigabytes * 10**9)
            await plane.runtime.sender.send(POOL, "default", "", RegisterNode(node=described))
            await plane.until(plane.api, f"/v1/nodes/{node_id}", lambda shown: "slots" in shown)
            answer = await submit(client, file_id)
            assert answer.status_code == status, answer.text
            if status == 400:
                assert answer.json()["error"]["param"] == "training.max_length"
                assert (
                    "the job may have the largest has 1.0 GB" in answer.json()["error"]["message"]
                )


async def test_review2_p11_a_loop_at_a_limit_leaves_one_refusal_on_the_log(
    api: ControlPlane,
) -> None:
    """9,480 refusals of one polite loop were 4 MB of a journal that is kept for ever."""
    client = await api.tenant(limits={"concurrency": 1, "soft_gpu_ms": 10**9, "hard_gpu_ms": 10**9})
    file = await api.upload(client)
    await api.validated(client, file["id"])
    first = await submit(client, file["id"])
    assert first.status_code == 200, first.text
    recorded = await submit(client, file["id"], seed=1)
    before = await written(api)
    for seed in range(2, 12):
        again = await submit(client, file["id"], seed=seed)
        assert (again.status_code, again.json()) == (429, recorded.json())
    assert await written(api) == before
    # a client that may repeat what was accepted is answered by the decider, by its key or its body
    for headers in ({"idempotency-key": "a"}, {"x-stainless-retry-count": "1"}):
        assert (await submit(client, file["id"], seed=20, headers=headers)).status_code == 429
    assert await written(api) == before + 2
    await client.post(f"/v1/fine_tuning/jobs/{first.json()['id']}/cancel")
    assert (await submit(client, file["id"], seed=30)).status_code == 200


async def written(api: ControlPlane) -> int:
    """Number of records in the journals of `job`."""
    bounds = [await api.world.log.bounds(JOB.journal.name, each) for each in range(PARTITIONS)]
    return sum(end for _, end in bounds)


async def test_exit_kit_an_estimate_needs_no_file_where_the_tokens_are_known(
    api: ControlPlane,
) -> None:
    """Time and price of a job of another account, before its rows are here."""
    client, file_id = await ready(api)
    path, body = "/v1/fine_tuning/jobs/estimate", {"model": "tiny-llama"}
    known = (await client.post(path, json={**body, "training_tokens": 1_000_000})).json()
    assert (known["estimation_available"], known["refusal"]) == (True, None)
    assert 0 < known["amount_micro"] < known["amount_max_micro"]
    more = (await client.post(path, json={**body, "training_tokens": 4_000_000})).json()
    assert more["train_gpu_ms"] > known["train_gpu_ms"]
    counted = (await client.post(path, json={**body, "training_file": file_id})).json()
    both = {**body, "training_file": file_id, "training_tokens": 4_000_000}
    assert (await client.post(path, json=both)).json()["steps"] == counted["steps"]
    refused = await client.post("/v1/fine_tuning/jobs", json=both)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "training_tokens")


async def test_a_job_names_its_optimizer_and_sees_where_that_has_run(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    path = "/v1/fine_tuning/jobs/estimate"
    usual = (await client.post(path, json=body)).json()
    assert usual["hyperparameters"]["optimizer"] == "adamw"
    muon = (await client.post(path, json={**body, "training": {"optimizer": "muon"}})).json()
    assert muon["hyperparameters"]["optimizer"] == "muon"
    assert muon["engine"]["reason"].endswith("the optimizer muon has run on processors only")
    assert muon["engine"]["ran_on"] == ["cpu"]
    job = await submit(client, file_id, training={"optimizer": "adamw_8bit"})
    assert job.json()["hyperparameters"]["optimizer"] == "adamw_8bit"


async def test_an_optimizer_that_cannot_be_used_is_refused_with_the_fix(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    for training, words in (
        ({"optimizer": "lion"}, "must be one of adamw, adamw_8bit, muon"),
        (
            {"optimizer": "muon", "slots": 2, "shard_weights": True},
            "shard_weights; set it to false",
        ),
        ({"optimizer": "adamw_8bit", "offload": True}, "with offload; set optimizer to adamw"),
    ):
        refused = await submit(client, file_id, training=training)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "training.optimizer")
        assert words in error["message"]
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []
