"""`/v1/gate/benchmarks`: what the gate may ask beside its bundled questions."""

import asyncio
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Request

from schemas import errors
from schemas.benchmark import Benchmark, BenchmarkKind
from schemas.gate import EVERY_BASE, AddBenchmark, RemoveBenchmark
from schemas.model import GLOBAL
from schemas.reasons import refusing
from schemas.topics import MODEL, PARTITIONS
from services.gateway.models.tables import BENCHMARKS, POLICIES, BenchmarkRow
from services.gateway.web.deps import Admin, Caller, Deps, Principal, WithDeps
from services.gateway.web.errors import BODY_TOO_LARGE, ApiError, invalid, not_found, refused
from services.gateway.web.responses import Deleted, ListItem, Page, listing, seconds
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from services.gateway.web.wording import refusal_words
from tunery.benchmarks.task import BYTES_MAX, Task, TaskUnusable, read_task

BENCHMARKS_MAX: Final = 1_000
POLICIES_MAX: Final = 100_000  # of all tenants; the decider refuses what more would hide
NAME: Final = "^[a-z0-9][a-z0-9._-]{0,63}$"
Name = Annotated[str, Path(pattern=NAME)]
BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
router = new_router("models")


class BenchmarkResponse(ListItem):
    """A benchmark; `id` is its name. sha256: of its file, in which all is that is asked.

    task: as what it was imported. shots: examples before each item
    """

    id: str
    object: Literal["gate.benchmark"] = "gate.benchmark"
    created_at: int
    task: str
    kind: BenchmarkKind
    sha256: str
    bytes: int
    items: int
    shots: int


@router.get("/v1/gate/benchmarks")
async def list_benchmarks(deps: WithDeps, caller: Caller) -> Page[BenchmarkResponse]:
    """List the benchmarks that jobs and policies may name."""
    rows = await deps.views.page(BENCHMARKS, {}, limit=BENCHMARKS_MAX, descending=False)
    return listing(Page[BenchmarkResponse], [_response(row) for row in rows], False)


@router.put("/v1/gate/benchmarks/{name}", status_code=201, openapi_extra=BODY)
async def add_benchmark(
    name: Name, request: Request, deps: WithDeps, admin: Admin
) -> BenchmarkResponse:
    """Add a benchmark; the body is its file, as `tunery gate import` writes it.

    Repeating the request changes nothing; other bytes need another name.
    """
    content = await _body(request)
    try:
        task = await asyncio.to_thread(read_task, content)
    except TaskUnusable as error:
        raise invalid(f"The body is no benchmark: {error}.", "body") from error
    digest = sha256(content).hexdigest()
    key = f"benchmarks/{digest}.jsonl"
    await within(deps.blobs.put(key, content, sha256=digest), len(content))
    await _announce(deps, admin, AddBenchmark(benchmark=benchmark_of(name, task, content, key)))
    row = await deps.views.first(BENCHMARKS, {"id": name})
    if row is None:
        raise not_found("Benchmark", name, "name")
    return _response(row)


@router.delete("/v1/gate/benchmarks/{name}")
async def remove_benchmark(name: Name, deps: WithDeps, admin: Admin) -> Deleted:
    """Remove a benchmark: new jobs and policies cannot name it.

    Jobs that were submitted still ask it, and verdicts keep its hash. A benchmark that a policy
    names is not removed: 409 says which.
    """
    if await deps.views.first(BENCHMARKS, {"id": name}) is None:
        raise not_found("Benchmark", name, "name")
    for policy in await deps.views.page(POLICIES, {}, limit=POLICIES_MAX, descending=False):
        if name in policy.policy.benchmarks:
            base_id = "default" if policy.id == EVERY_BASE else policy.id
            used = refusing("benchmark_in_policy", name=name, base_id=base_id)
            raise refused(errors.ILLEGAL_STATE, refusal_words(used), "name")
    await _announce(deps, admin, RemoveBenchmark(name=name))
    return Deleted(id=name, object="gate.benchmark")


def benchmark_of(name: str, task: Task, content: bytes, key: str) -> Benchmark:
    """A benchmark as it is written on the log. key: of its blob."""
    return Benchmark(
        name=name,
        task=task.header.task,
        kind=task.header.kind,
        sha256=sha256(content).hexdigest(),
        blob=key,
        bytes=len(content),
        items=len(task.items),
        shots=task.header.shots,
    )


async def _announce(deps: Deps, admin: Principal, command: AddBenchmark | RemoveBenchmark) -> None:
    """Write it to every partition. Raises ApiError."""
    actor = deps.seal.seal(admin.tenant, admin.key_id, "actor")
    decisions = (
        deps.commands.decide(MODEL, GLOBAL, command, partition=partition, actor=actor)
        for partition in range(PARTITIONS)
    )
    for result in await asyncio.gather(*decisions, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _body(request: Request) -> bytes:
    """The whole body. Raises ApiError 413."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BYTES_MAX:
            text = f"A benchmark has at most {BYTES_MAX} bytes."
            raise ApiError(413, BODY_TOO_LARGE, text, "body")
    return bytes(content)


def _response(row: BenchmarkRow) -> BenchmarkResponse:
    benchmark = row.benchmark
    return BenchmarkResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        task=benchmark.task,
        kind=benchmark.kind,
        sha256=benchmark.sha256,
        bytes=benchmark.bytes,
        items=benchmark.items,
        shots=benchmark.shots,
    )
