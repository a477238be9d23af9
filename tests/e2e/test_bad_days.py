"""Faults while jobs run: killed services, servers and agents, bad requests, bad checkpoints.

All tests share one stack with all services, one node agent and the two-layer model; Valkey is
stopped at its start. The last tests replay the whole log from offset 0.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest
import pytest_asyncio
from standardwebhooks.webhooks import Webhook

from schemas.topics import POOL
from tests.e2e.outages import SharedStack, an_upload, jobs_of
from tests.e2e.stories import (
    AGENT_A,
    OVERFLOWING,
    Api,
    RunningStack,
    client,
    overflowing_base,
    replayed,
    rows,
    training,
    tunery,
)
from tunery.local import processes
from tunery.local.stack import ServiceSpec
from tunery.platform.blobs.encrypted import SUFFIX, EncryptedBlobs
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.blobs.s3 import S3Blobs, S3Settings, connect
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.node_settings import halves_of
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.runtime.blobs.abstract import blob_key

pytestmark = pytest.mark.timeout(900)

KILLED: Final = ("scheduler", "billing", "ingest", "eval", "notifier", "registry", "gateway")
KILL_PAUSE_S: Final = 1.5
CHILD_S_MAX: Final = 180.0
ROWS: Final = 12
FILE_BYTES_TOO_LARGE: Final = 1_000_000
IDLE_MS_MAX: Final = 60_000  # far more than a step takes here, even beside a paused server
JSON: Final = {"content-type": "application/json"}
AGENT: Final = AGENT_A.name
ENROLLED: Final = "enrolled"


async def stop_valkey(home: RunningStack) -> None:
    await home.stack.stop("valkey")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_stack() -> AsyncIterator[SharedStack]:
    shared = SharedStack(
        stop_valkey,
        gateway={"TUNERY_GATEWAY_FILE_BYTES_MAX": str(FILE_BYTES_TOO_LARGE - 1)},
        scheduler={"TUNERY_SCHEDULER_IDLE_MS_MAX": str(IDLE_MS_MAX)},
    )
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session", name="home")
async def ready_stack(shared_stack: SharedStack) -> RunningStack:
    """The shared stack; a new one when the test before has left it unusable."""
    return await shared_stack.ready()


async def ensure_usage(home: RunningStack) -> None:
    """Run one job if the stack is new and has no usage yet."""
    if not (await home.api.get("/fine_tuning/jobs", limit=1))["data"]:
        job_id = await home.submit()
        await home.api.ended(job_id)
        await home.bill(job_id)


async def kill_in_turn(home: RunningStack) -> None:
    """kill -9 of one service after the other; the supervisor restarts each."""
    for name in KILLED:
        await home.stack.await_ready(name)
        assert len(home.stack.kill(name)) == 1, name
        await asyncio.sleep(KILL_PAUSE_S)


async def test_kill_9_of_every_service_while_a_job_runs(home: RunningStack) -> None:
    job_id = await home.submit(n_epochs=20)
    await kill_in_turn(home)
    await home.api.job(job_id, training)
    await kill_in_turn(home)
    home.stack.pause("registry")  # so that the job is still in this phase at the kill
    await home.api.job(job_id, lambda job: job["phase"] == "registering")
    assert len(home.stack.kill("registry")) == 1
    job = await home.api.ended(job_id)
    assert job["attempt"] == 2, "one attempt to train and one to evaluate: nothing ran twice"
    bill = await home.bill(job_id)
    assert bill["net_gpu_ms"] > 0
    assert bill["credited_gpu_ms"] == 0
    model = await home.api.get(f"/models/{job['fine_tuned_model']}")
    assert model["lineage"]["job_id"] == job_id


async def test_kill_9_of_the_agent_leaves_no_second_training(home: RunningStack) -> None:
    job_id = await home.submit(n_epochs=8)
    newest = await home.with_checkpoint(job_id)
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    descendants = [processes.record("orphan", pid) for pid in processes.descendants(agent)]
    left = [orphan for orphan in descendants if orphan is not None]
    assert left, "the training is a process of its own"
    assert home.stack.kill(AGENT) == [agent]
    assert all(orphan.is_alive() for orphan in left)
    job = await home.api.job(
        job_id, lambda state: state["attempt"] == 2 and state["phase"] == "running"
    )
    assert not any(orphan.is_alive() for orphan in left)
    assert job["progress"]["resumed_from_step"] >= newest["step_number"]
    job = await home.api.ended(job_id)
    assert job["attempt"] == 3
    bill = await home.bill(job_id)
    assert bill["net_gpu_ms"] == bill["billable_gpu_ms"] - bill["credited_gpu_ms"] > 0
    assert "Attempt 1 lost its machine" in "\n".join(await home.api.messages(job_id))


@pytest.mark.soak  # the deadline is the scheduler's; its tests let it pass
async def test_a_training_without_progress_is_stopped_and_resumed(
    home: RunningStack,
) -> None:
    """SIGSTOP of the training process alone. There is one node, so the job resumes on it."""
    job_id = await home.submit(n_epochs=40)
    newest = await home.with_checkpoint(job_id)
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    for pid in processes.descendants(agent):
        os.kill(pid, signal.SIGSTOP)
    job = await home.api.job(job_id, lambda state: state["attempt"] == 2 and training(state))
    assert home.stack.supervisor.pid(AGENT) == agent
    assert job["progress"]["resumed_from_step"] >= newest["step_number"]
    assert "Attempt 1 failed: bad_node" in "\n".join(await home.api.messages(job_id))
    await assert_allowed(home, job_id, "cancel", "cancelled")
    await home.api.ended(job_id, "cancelled")
    lines = (await home.bill(job_id))["lines"]
    credited = [line for line in lines if line["kind"] == "credit"]
    assert [line["cause"] for line in credited] == ["bad_node"]
    assert -credited[0]["billable_gpu_ms"] > IDLE_MS_MAX / 2


# --- servers --------------------------------------------------------------------------------------


@pytest.mark.soak  # test_outages kills each of them, for longer
async def test_kill_9_of_every_server_while_a_job_runs(home: RunningStack) -> None:
    job_id = await home.submit(n_epochs=12)
    await home.api.job(job_id, training)
    for server in ("kafka", "postgres", "s3"):
        assert len(home.stack.kill(server)) == 1
        await asyncio.sleep(KILL_PAUSE_S)
        await home.stack.await_ready(server)
        await home.api.get(f"/fine_tuning/jobs/{job_id}")
    job = await home.api.ended(job_id)
    assert job["attempt"] == 2, await home.api.messages(job_id)
    assert (await home.bill(job_id))["credited_gpu_ms"] == 0


# --- requests of users ----------------------------------------------------------------------------


async def request_change(home: RunningStack, job_id: str, what: str) -> httpx.Response:
    return await home.api.patiently("POST", f"/fine_tuning/jobs/{job_id}/{what}")


async def assert_allowed(home: RunningStack, job_id: str, what: str, status: str) -> None:
    reply = await request_change(home, job_id, what)
    assert (reply.status_code, reply.json().get("status")) == (httpx.codes.OK, status), reply.text


async def assert_illegal(home: RunningStack, job_id: str, *changes: str) -> None:
    """Assert that each change is refused with 409, and that SDKs are told not to repeat it."""
    for what in changes:
        reply = await request_change(home, job_id, what)
        assert reply.status_code == httpx.codes.CONFLICT, reply.text
        assert reply.json()["error"]["code"] == "illegal_state"
        assert reply.headers["x-should-retry"] == "false"


async def test_pause_resume_and_cancel(home: RunningStack) -> None:
    first = await home.submit(n_epochs=40)
    newest = await home.with_checkpoint(first)
    second = await home.submit()
    # its place in the queue is foretold while its files are still being validated
    waiting = await home.api.job(second, lambda job: job["status"] == "queued")
    assert waiting["queue"]["position"]
    assert waiting["queue"]["reason"]
    await assert_illegal(home, second, "resume")
    await assert_allowed(home, second, "pause", "paused")
    await assert_allowed(home, second, "pause", "paused")
    await assert_allowed(home, second, "cancel", "cancelled")
    await home.api.ended(second, "cancelled")
    await assert_allowed(home, second, "cancel", "cancelled")  # as the first one was
    await assert_illegal(home, second, "pause", "resume")
    assert (await home.bill(second))["lines"] == []

    await assert_illegal(home, first, "resume")
    assert (await request_change(home, first, "pause")).is_success
    await home.api.job(first, lambda job: job["status"] == "paused")
    kept = (await home.api.get(f"/fine_tuning/jobs/{first}/checkpoints"))["data"][0]
    assert kept["step_number"] > newest["step_number"], "pausing keeps what was trained"
    assert (await request_change(home, first, "resume")).is_success
    again = await home.api.job(first, lambda job: job["attempt"] == 2 and training(job))
    assert again["progress"]["resumed_from_step"] == kept["step_number"]
    await assert_allowed(home, first, "cancel", "cancelled")
    await home.api.ended(first, "cancelled")
    await assert_allowed(home, first, "cancel", "cancelled")
    await assert_illegal(home, first, "pause", "resume")
    bill = await home.bill(first)
    assert [line["attempt"] for line in bill["lines"]] == [1, 2]
    assert bill["net_gpu_ms"] == bill["used_gpu_ms"] > 0, (
        "a cancelled job is billed for what it used"
    )


async def test_a_damaged_checkpoint_is_skipped(home: RunningStack) -> None:
    job_id = await home.submit(n_epochs=40)
    await home.with_checkpoint(job_id)
    home.stack.kill(AGENT, tree=True, restart=False)
    # its reports have arrived once its node is lost: they are before that in the same journal
    await home.api.job(job_id, lambda state: state["phase"] != "running")
    listed = (await home.api.get(f"/fine_tuning/jobs/{job_id}/checkpoints"))["data"]
    newest, older = listed[0], listed[1]
    await damage_checkpoint(home, job_id, newest["manifest_sha256"])
    await home.stack.start(AGENT)
    job = await home.api.job(job_id, lambda state: state["attempt"] == 2 and training(state))
    assert job["progress"]["resumed_from_step"] == older["step_number"] < newest["step_number"]
    said = [text for text in await home.api.messages(job_id) if "passed over" in text]
    assert len(said) == 1
    assert newest["manifest_sha256"] in said[0]
    assert older["manifest_sha256"] not in said[0]
    await assert_allowed(home, job_id, "cancel", "cancelled")
    await home.api.ended(job_id, "cancelled")
    lines = (await home.bill(job_id))["lines"]
    credited = {
        line["cause"]: -line["billable_gpu_ms"] for line in lines if line["kind"] == "credit"
    }
    assert credited["skipped_checkpoint"] > 0
    assert set(credited) <= {"skipped_checkpoint", "lost"}


async def damage_checkpoint(home: RunningStack, job_id: str, manifest_sha256: str) -> None:
    """Overwrite a file of a checkpoint in object storage, where it is encrypted."""
    where, kind = home.stack, f"checkpoints/{job_id}/1"
    storage = S3Blobs(
        S3Settings(where.s3_endpoint, where.s3_access_key, where.s3_secret_key, where.s3_bucket)
    )
    keys = DirectoryKeyStore(where.folders.keystore, Roots(where.folders.roots))
    opened = EncryptedBlobs(storage, TenantPathKeys(keys))
    manifest = json.loads(await opened.get(blob_key("local", kind, manifest_sha256)))
    files = {file["name"]: file["sha256"] for file in manifest["files"]}
    key = blob_key("local", kind, files["adapter_model.safetensors"]) + SUFFIX
    assert await storage.exists(key)
    await storage.put(key, b"not what it was")
    await opened.close()


async def assert_refused(
    api: Api, status: int, code: str, method: str, path: str, param: str | None = None, **sent: Any
) -> str:
    """Assert a 4xx with this code in OpenAI's error envelope; returns its message."""
    reply = await api.call(method, path, **sent)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == (code, param), error
    assert error["message"]
    return str(error["message"])


async def create_tenant(home: RunningStack, name: str, **body: Any) -> str:
    """Create a tenant; returns an API key of it."""
    await home.api.post("/tenants", {"id": name, **body})
    return str((await home.api.post(f"/tenants/{name}/keys", {"name": "test"}))["key"])


async def test_bad_requests_get_a_helpful_error(home: RunningStack) -> None:
    api, jobs = home.api, "/fine_tuning/jobs"

    async def assert_submission_refused(
        status: int, code: str, param: str | None, **changes: Any
    ) -> str:
        body = home.request(**changes)
        return await assert_refused(api, status, code, "POST", jobs, param, json=body)

    await assert_submission_refused(404, "model_not_found", "model", model="gpt-9")
    rank = await assert_submission_refused(
        400, "invalid_value", "lora.rank", lora={"rank": 100_000}
    )
    assert "from 1 to 256" in rank
    both = await assert_submission_refused(
        400, "invalid_value", "lora.rank", lora={"rank": 0}, training={"learning_rate": 7}
    )
    assert "2 problems" in both
    await assert_submission_refused(400, "unsupported", "method.type", method={"type": "ppo"})
    await assert_submission_refused(
        400, "invalid_value", "method.reinforcement.grader", method={"type": "reinforcement"}
    )
    await assert_submission_refused(404, "not_found", "training_file", training_file="file-nobody")
    await assert_refused(api, 400, "invalid_request", "POST", jobs, "model", json={})
    await assert_refused(api, 400, "invalid_request", "POST", jobs, content=b"{", headers=JSON)
    await assert_refused(api, 404, "not_found", "GET", f"{jobs}/ftjob-nobody", "id")
    await assert_refused(api, 404, "not_found", "POST", f"{jobs}/ftjob-nobody/cancel", "id")
    await assert_refused(api, 404, "not_found", "GET", "/files/file-nobody", "id")
    bad = home.request(metadata={"story": "bad file"})
    bad["training_file"] = await upload_rejected_file(home)
    await assert_refused(api, 422, "invalid_training_file", "POST", jobs, "training_file", json=bad)
    await assert_refused(
        api, 400, "invalid_value", "POST", "/files", "purpose", **an_upload(b"x", "e")
    )
    await assert_refused(
        api,
        413,
        "file_too_large",
        "POST",
        "/files",
        "file",
        **an_upload(b" " * FILE_BYTES_TOO_LARGE),
    )
    cut = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n{'
    form = {"content-type": "multipart/form-data; boundary=b"}
    await assert_refused(api, 400, "incomplete_upload", "POST", "/files", content=cut, headers=form)
    assert await jobs_of(home, "bad file") == []


async def upload_rejected_file(home: RunningStack) -> str:
    reply = await home.api.call("POST", "/files", **an_upload(b'{"messages": 3}\n'))
    file_id = str(reply.json()["id"])
    report = await home.api.until(
        f"/files/{file_id}/validation",
        lambda validation: validation["status"] == "done",
        CHILD_S_MAX,
    )
    assert not report["accepted"]
    return file_id


async def test_limits_and_isolation_of_tenants(home: RunningStack) -> None:
    jobs = "/fine_tuning/jobs"
    key = await create_tenant(home, "small", plan="free")  # one job at a time
    async with client(home.stack.api_url, key) as http:
        small = Api(http)
        theirs = replace(home, api=small, file_id=await small.upload(rows(ROWS)))
        first = await theirs.submit()
        body = theirs.request()
        await assert_refused(small, 429, "concurrency_limit_exceeded", "POST", jobs, json=body)
        assert (await request_change(theirs, first, "pause")).is_success
        second = await theirs.submit()
        resume = f"{jobs}/{first}/resume"
        await assert_refused(small, 429, "concurrency_limit_exceeded", "POST", resume)
        for job_id in (first, second):
            await request_change(theirs, job_id, "cancel")
            await small.ended(job_id, "cancelled")
            await theirs.bill(job_id)
        await assert_refused(
            small, 404, "not_found", "POST", jobs, "training_file", json=home.request()
        )
        mine = await home.submit()
        for path in (f"{jobs}/{mine}", f"{jobs}/{mine}/events", f"{jobs}/{mine}/cost"):
            await assert_refused(small, 404, "not_found", "GET", path, "id")
        await assert_refused(small, 404, "not_found", "POST", f"{jobs}/{mine}/cancel", "id")
        await assert_refused(small, 404, "not_found", "GET", f"/files/{home.file_id}/content", "id")
        await assert_refused(small, 403, "insufficient_permissions", "GET", "/tenants")
        await request_change(home, mine, "cancel")
        await home.api.ended(mine, "cancelled")
    limits = {"soft_gpu_ms": 1_000, "hard_gpu_ms": 1_000, "concurrency": 2}
    async with client(home.stack.api_url, await create_tenant(home, "poor", limits=limits)) as http:
        poor = Api(http)
        body = {**home.request(), "training_file": await poor.upload(rows(ROWS))}
        await assert_refused(poor, 429, "hard_limit_exceeded", "POST", jobs, json=body)
    for wrong in ("tun-nobody", "x" * 10_000):
        async with client(home.stack.api_url, wrong) as http:
            await assert_refused(Api(http), 401, "invalid_api_key", "GET", "/models")


async def test_a_job_that_diverges_ends_with_advice_and_a_webhook(
    home: RunningStack, tmp_path: Path
) -> None:
    kinds = [f"fine_tuning.job.{kind}" for kind in ("succeeded", "failed", "cancelled")]
    endpoint = await home.api.post(
        "/webhook_endpoints", {"name": "bad days", "url": home.receiver.url, "event_types": kinds}
    )
    folder = await asyncio.to_thread(overflowing_base, tmp_path)
    await home.api.post("/bases", {"id": OVERFLOWING, "path": str(folder)})
    job_id = await home.submit(
        model=OVERFLOWING,
        training_file=await home.api.upload(rows()),
        training={"learning_rate": 0.1},
    )
    job = await home.api.ended(job_id, "failed")
    assert job["error"]["code"] == "diverged", job["error"]
    assert "learning rate" in job["error"]["message"].lower()
    assert (await home.bill(job_id))["final"]
    assert job["cost"]["hold_gpu_ms"] is None, "the rest of the hold is released"
    await home.api.until(
        f"/webhook_endpoints/{endpoint['id']}/deliveries",
        lambda listed: [delivery["outcome"] for delivery in listed["data"]] == ["delivered"],
    )
    sent = [
        Webhook(endpoint["signing_secret"]).verify(delivery.body.decode(), delivery.headers)
        for delivery in home.receiver.received
    ]
    assert [(event["type"], event["data"]["id"]) for event in sent] == [
        ("fine_tuning.job.failed", job_id)
    ]
    await home.api.patiently("DELETE", f"/webhook_endpoints/{endpoint['id']}")


#: what a node gets with its token
VARIABLES: Final = (
    *("TUNERY_COMMAND_KEYS", "TUNERY_KAFKA_BOOTSTRAP", "TUNERY_KAFKA_SECURITY_PROTOCOL"),
    *("TUNERY_KAFKA_SASL_MECHANISM", "TUNERY_KAFKA_USERNAME", "TUNERY_KAFKA_PASSWORD"),
    *("TUNERY_S3_ENDPOINT", "TUNERY_S3_BUCKET", "TUNERY_S3_ACCESS_KEY", "TUNERY_S3_SECRET_KEY"),
)


async def test_security_c2_a_node_joins_with_a_token_that_works_once(home: RunningStack) -> None:
    root = home.stack.folders.root
    words = ("--accounts", "--expires", "30m", "--json")
    status, said = await tunery(root, "node", "enrol", ENROLLED, *words)
    assert status == 0, said
    token = json.loads(said)["token"]
    await check_accounts(home, f"node.{ENROLLED}")  # before an agent is added
    status, said = await tunery(root, "node", "list")
    assert f"{ENROLLED} is invited until" in said
    try:
        await home.stack.add(enrolling("agent-first", home, token))
        await home.api.until(f"/nodes/{ENROLLED}", lambda node: node["status"] == "up")
        kept = root / "nodes" / ENROLLED / "enrolment.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        shown, half = halves_of(token)
        assert half
        stolen = {"token": shown, "public_key": "9" * 64}
        async with httpx.AsyncClient(base_url=home.stack.api_url, trust_env=False) as stranger:
            refused = await stranger.post(f"/v1/nodes/{ENROLLED}/enrol", json=stolen)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invitation_refused"
        await home.stack.stop("agent-first")
        await home.stack.add(enrolling("agent-again", home))
        await home.api.until(f"/nodes/{ENROLLED}", lambda node: node["status"] == "up")
        assert (await tunery(root, "node", "withdraw", ENROLLED))[0] == 0
        await home.stack.stop("agent-again")
        status, said = await tunery(root, "node", "enrol", ENROLLED, *words)
        assert status == 0, said
        await home.stack.add(enrolling("agent-next", home, json.loads(said)["token"]))
        await home.api.until(f"/nodes/{ENROLLED}", lambda node: node["status"] == "up")
        assert json.loads(json.loads(kept.read_text())["command_keys"])["sender"].endswith("#2")
    finally:
        for name in ("agent-first", "agent-again", "agent-next"):
            with suppress(KeyError):
                await home.stack.stop(name)
    log = (home.stack.folders.logs / "gateway.log").read_text(encoding="utf-8")
    assert shown not in log
    assert half not in log
    await home.api.until(f"/nodes/{ENROLLED}", lambda node: node["status"] == "retired")
    assert (await tunery(root, "node", "forget", ENROLLED))[0] == 0


async def check_accounts(home: RunningStack, principal: str) -> None:
    """Fails unless a principal may log in to Kafka and S3."""
    log = KafkaLog(home.stack.kafka_as(principal))
    try:
        await log.bounds(POOL.journal.name, 0)
    finally:
        await log.close()
    environment = home.stack.settings.environment(principal)
    names = ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "BUCKET")
    client = connect(S3Settings(*(environment[f"TUNERY_S3_{name}"] for name in names)))
    client.head_bucket(Bucket=environment["TUNERY_S3_BUCKET"])
    client.close()


def enrolling(name: str, home: RunningStack, token: str = "") -> ServiceSpec:
    """The agent of a node that knows no server and has no keys."""
    env = {"TUNERY_NODE_ID": ENROLLED, **dict.fromkeys(VARIABLES, "")}
    if token:
        env |= {"TUNERY_NODE_TOKEN": token, "TUNERY_NODE_GATEWAY_URL": home.stack.api_url}
    return ServiceSpec(name, module="services.trainer", env=env, stop_ms_max=60_000)


async def test_replay_from_offset_0_gives_the_same_state(home: RunningStack) -> None:
    await ensure_usage(home)
    report = await replayed(home.stack.folders.root)
    assert [part for part in report["parts"] if part["difference"]] == []
    assert report["equal"]
    assert sum(part["count"] for part in report["parts"] if part["unit"] == "GPU-ms") > 0


@pytest.mark.parametrize(
    ("change", "undo", "part"),
    [
        (
            "UPDATE billing.ledger SET gpu_ms = gpu_ms + 1 WHERE kind = 'usage'",
            "UPDATE billing.ledger SET gpu_ms = gpu_ms - 1 WHERE kind = 'usage'",
            "billing.ledger",
        ),
        (
            "UPDATE scheduler.digests SET state_hash = 'x' || state_hash",
            "UPDATE scheduler.digests SET state_hash = substr(state_hash, 2)",
            "scheduler.job",
        ),
    ],
)
async def test_replay_names_the_table_that_was_tampered_with(
    home: RunningStack, change: str, undo: str, part: str
) -> None:
    await ensure_usage(home)
    connection = await asyncpg.connect(home.stack.postgres_dsn)
    try:
        assert await connection.execute(change) != "UPDATE 0"
        report = await replayed(home.stack.folders.root)
        await connection.execute(undo)
    finally:
        await connection.close()
    assert not report["equal"]
    assert part in {checked["name"] for checked in report["parts"] if checked["difference"]}
