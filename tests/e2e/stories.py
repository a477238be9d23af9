"""Helpers of end-to-end tests: a running stack, a small job, its bill."""

import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import asyncpg
import httpx
from safetensors.torch import load_file, save_file

from tests.bases import tiny_base
from tests.stacks import sweep, temporary_data_dir
from tunery.cli.demo.receiver import Receiver, receiving
from tunery.local import initial_setup
from tunery.local.paths import DataDir
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, Stack, stack

TINY: Final = "tiny"
OVERFLOWING: Final = "overflowing"
REQUEST_S_MAX: Final = 120.0
OUTAGE_S_MAX: Final = 240.0
VALIDATION_S_MAX: Final = 240.0
JOB_S_MAX: Final = 600.0
BILL_S_MAX: Final = 180.0
COMMAND_S_MAX: Final = 240
POLL_S: Final = 0.2
ROWS: Final = 48
AGENT_A: Final = ServiceSpec("agent-a", module="services.trainer", env={"TUNERY_NODE_ID": "a"})
LEDGER: Final = "SELECT coalesce(sum(gpu_ms), 0)::bigint FROM billing.ledger WHERE job_id = $1"
Json = dict[str, Any]

#: some 80 steps of a few hundredths of a second, a checkpoint every fifth
TRAINING: Final[Json] = {
    "method": {
        "type": "supervised",
        "supervised": {"hyperparameters": {"n_epochs": 4, "batch_size": 1}},
    },
    "lora": {"rank": 4},
    "training": {"max_length": 128, "checkpoint_every_steps": 5, "learning_rate": 1e-3},
}


def overflowing_base(folder: Path) -> Path:
    """A copy of the tiny base that computes the same, but with weights whose gradients overflow.

    A high learning rate alone does not make a job diverge, because all layers are normalised.
    """
    base_dir = folder / OVERFLOWING
    shutil.copytree(tiny_base().dir, base_dir)
    weights = base_dir / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.layers.0.mlp.up_proj.weight"] *= 1e30
    tensors["model.layers.0.mlp.down_proj.weight"] *= 1e-30
    save_file(tensors, weights, metadata={"format": "pt"})
    return base_dir


def rows(count: int = ROWS) -> bytes:
    """Short conversations, all different."""
    texts = (
        {
            "messages": [
                {"role": "user", "content": f"What is {number} plus {number + 3}?"},
                {"role": "assistant", "content": f"Together that is {2 * number + 3}, captain."},
            ]
        }
        for number in range(count)
    )
    return b"".join(json.dumps(text).encode() + b"\n" for text in texts)


@dataclass(frozen=True)
class Api:
    """A client of the API that repeats requests during an outage."""

    client: httpx.AsyncClient

    async def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send one request; returns any response."""
        return await self.client.request(method, f"/v1{path}", **arguments)

    async def patiently(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request that may be repeated until it is answered with anything but 503."""
        last = ""
        async with asyncio.timeout(OUTAGE_S_MAX):
            while True:
                try:
                    reply = await self.call(method, path, **arguments)
                except httpx.TransportError as error:
                    last = repr(error)
                else:
                    if reply.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                        return reply
                    last = reply.text
                await asyncio.sleep(POLL_S)
        raise AssertionError(f"{method} {path}: {last}")

    async def get(self, path: str, **params: Any) -> Any:
        reply = await self.patiently("GET", path, params=params)
        assert reply.status_code == httpx.codes.OK, reply.text
        return reply.json()

    async def post(self, path: str, body: Any = None, **headers: str) -> Any:
        reply = await self.patiently("POST", path, json=body, headers=headers)
        assert reply.is_success, reply.text
        return reply.json()

    async def upload(self, content: bytes, name: str = "rows.jsonl") -> str:
        """Id of the file, once it is validated and accepted."""
        reply = await self.patiently(
            "POST",
            "/files",
            data={"purpose": "fine-tune"},
            files={"file": (name, content, "application/jsonl")},
        )
        assert reply.is_success, reply.text
        file_id = str(reply.json()["id"])
        report = await self.until(
            f"/files/{file_id}/validation",
            lambda validation: validation["status"] == "done",
            VALIDATION_S_MAX,
        )
        assert report["accepted"], report
        return file_id

    async def submit(self, body: Json, key: str | None = None) -> str:
        headers = {"Idempotency-Key": key or uuid4().hex}
        reply = await self.patiently("POST", "/fine_tuning/jobs", json=body, headers=headers)
        assert reply.is_success, reply.text
        return str(reply.json()["id"])

    async def until(
        self, path: str, done: Callable[[Any], bool], seconds_max: float = JOB_S_MAX, **query: Any
    ) -> Any:
        deadline = time.monotonic() + seconds_max
        while True:
            value = await self.get(path, **query)
            if done(value):
                return value
            assert time.monotonic() < deadline, f"{path} after {seconds_max} s: {value}"
            await asyncio.sleep(POLL_S)

    async def job(
        self, job_id: str, done: Callable[[Json], bool], seconds_max: float = JOB_S_MAX
    ) -> Json:
        """Wait until `done` holds for the job; fails at once when the job ends before that."""

        def seen(state: Json) -> bool:
            holds = done(state)
            assert holds or state["phase"] != "done", state
            return holds

        job: Json = await self.until(f"/fine_tuning/jobs/{job_id}", seen, seconds_max)
        return job

    async def ended(self, job_id: str, status: str = "succeeded") -> Json:
        job = await self.job(job_id, lambda state: state["phase"] == "done")
        assert job["status"] == status, job
        return job

    async def messages(self, job_id: str) -> list[str]:
        """Messages of the job's events, oldest first, without those of steps."""
        page = await self.get(f"/fine_tuning/jobs/{job_id}/events", limit=1000)
        return [event["message"] for event in page["data"][::-1] if event["type"] == "message"]


@dataclass(frozen=True)
class Tenant:
    """A tenant with a key, a validated file and a base model. dsn: PostgreSQL with the ledger."""

    api: Api
    base: str
    file_id: str
    dsn: str

    def request(self, **changes: Any) -> Json:
        """Body of a submission of a small job; `training` is merged into its own."""
        training = TRAINING["training"] | changes.pop("training", {})
        epochs = changes.pop("n_epochs", None)
        method = TRAINING["method"]
        if epochs is not None:
            hyper = method["supervised"]["hyperparameters"] | {"n_epochs": epochs}
            method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
        body = {"model": self.base, "training_file": self.file_id, **TRAINING, "seed": 7}
        return {**body, "training": training, "method": method, **changes}

    async def submit(self, key: str | None = None, **changes: Any) -> str:
        return await self.api.submit(self.request(**changes), key)

    async def bill(self, job_id: str) -> Json:
        """The cost of an ended job, when ledger, cost and job agree on it to the unit."""
        deadline = time.monotonic() + BILL_S_MAX
        while True:
            job = await self.api.get(f"/fine_tuning/jobs/{job_id}")
            cost: Json = await self.api.get(f"/fine_tuning/jobs/{job_id}/cost")
            said = job["cost"]
            sums = {
                "ledger": await self.ledger(job_id),
                "cost": cost["net_gpu_ms"],
                "job": said["billable_gpu_ms"] - said["credited_gpu_ms"],
            }
            if len(set(sums.values())) == 1:
                return cost
            assert time.monotonic() < deadline, sums
            await asyncio.sleep(POLL_S)

    async def ledger(self, job_id: str) -> int:
        connection = await asyncpg.connect(self.dsn)
        try:
            return int(await connection.fetchval(LEDGER, job_id))
        finally:
            await connection.close()

    async def published(self, job_id: str) -> dict[str, str]:
        """Hashes of the weights and the configuration of a job's model; the rest names the job."""
        name = (await self.api.get(f"/fine_tuning/jobs/{job_id}"))["fine_tuned_model"]
        listed = await self.api.get(f"/models/{quote(name, safe='')}/adapter")
        kept = ("config.json", ".safetensors")
        return {f["name"]: f["sha256"] for f in listed["files"] if f["name"].endswith(kept)}

    async def with_checkpoint(self, job_id: str) -> Json:
        """The newest checkpoint of a job that is still training, with steps after it."""
        await self.api.job(job_id, training)
        checkpoints = await self.api.until(
            f"/fine_tuning/jobs/{job_id}/checkpoints", lambda listed: len(listed["data"]) >= 2
        )
        newest: Json = checkpoints["data"][0]
        return newest


@dataclass(frozen=True)
class RunningStack(Tenant):
    """A running stack and its first tenant."""

    stack: Stack
    receiver: Receiver


def rank_of(pid: int) -> int | None:
    """The number of a rank by its name; None: it is no rank, or has ended."""
    try:
        name = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return None
    named = re.search(r"\(rank (\d+)\)", name)
    return None if named is None else int(named[1])


def training(job: Json) -> bool:
    """Whether the job runs and has completed a step."""
    return job["phase"] == "running" and bool(job["progress"] and job["progress"]["step"] >= 1)


@asynccontextmanager
async def running_stack(
    agents: tuple[ServiceSpec, ...] = (AGENT_A,), **variables: Mapping[str, str]
) -> AsyncIterator[RunningStack]:
    """All services and these agents. `variables`: extra environment of services, by name.

    An agent with the name of a service stands in for it.
    """
    sweep()
    local = {"notifier": {"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"}}
    services = [
        ServiceSpec(name, env={**local.get(name, {}), **variables.get(name, {})})
        for name in SERVICES
        if name not in (AGENT, *(agent.name for agent in agents))
    ]
    tiny = await asyncio.to_thread(tiny_base)
    with temporary_data_dir() as data_dir, receiving() as receiver:
        async with stack(data_dir, [*services, *agents], environ={}) as running:
            await initial_setup.run_setup_steps(
                running, lambda _line: None, (initial_setup.create_tenant,)
            )
            async with client(running.api_url, running.admin_key) as http:
                api = Api(http)
                await api.post("/bases", {"id": TINY, "path": str(tiny.dir)})
                file_id = await api.upload(rows())
                yield RunningStack(api, TINY, file_id, running.postgres_dsn, running, receiver)
            assert_no_host_hung(data_dir)


def assert_no_host_hung(data_dir: Path) -> None:
    """Assert that every host of every service has reported, whatever it waited for."""
    for log in sorted(DataDir(data_dir).logs.glob("*.log")):
        for line in log.read_text("utf-8", "replace").splitlines():
            assert '"host.hung"' not in line, f"{log.name}: {line}"


def client(api_url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=api_url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=REQUEST_S_MAX,
        trust_env=False,
    )


async def tunery(data_dir: Path, *words: str) -> tuple[int, str]:
    """Run a `tunery` command; returns its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", *words, "--data-dir", str(data_dir)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
    return process.returncode or 0, (out if out.strip() else errors).decode()


async def replayed(data_dir: Path) -> Json:
    """The report of `tunery replay --verify --json`."""
    status, said = await tunery(data_dir, "replay", "--verify", "--json")
    assert said.startswith("{"), said
    report: Json = json.loads(said)
    assert report["equal"] == (status == 0), said
    return report
