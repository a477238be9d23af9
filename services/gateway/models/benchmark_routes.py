"""`/v1/gate/benchmarks`: what the gate may ask besides its bundled questions."""

import asyncio
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Request

from schemas import errors
from schemas.benchmark import Benchmark, BenchmarkKind
from schemas.gate import EVERY_BASE, AddBenchmark, RemoveBenchmark
from schemas.reasons import refusing
from schemas.records import build_from
from schemas.topics import MODEL
from services.gateway.views.tables.models import BENCHMARKS, POLICIES
from services.gateway.web.deps import Admin, WithDeps
from services.gateway.web.domain.errors import BODY_TOO_LARGE, ApiError, invalid, refused
from services.gateway.web.domain.responses import Deleted, ListItem, Seconds
from services.gateway.web.resources import Resource, each, shared_rows
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from services.gateway.wording import refusal_words
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

    task: name of the task that it was imported as. shots: number of examples before each item
    """

    id: str
    object: Literal["gate.benchmark"] = "gate.benchmark"
    created_at: Seconds
    task: str
    kind: BenchmarkKind
    sha256: str
    bytes: int
    items: int
    shots: int


BENCHMARK: Final = Resource(
    noun="Benchmark",
    table=BENCHMARKS,
    response=BenchmarkResponse,
    respond=each(lambda _, row: BenchmarkResponse.of(row, row.benchmark)),
    rows=shared_rows,
    newest_first=False,
    limit=BENCHMARKS_MAX,
    limit_max=BENCHMARKS_MAX,
    param="name",
)
BENCHMARK.add_list(
    router,
    "/v1/gate/benchmarks",
    "list_benchmarks",
    "List the benchmarks that jobs and policies may name.",
)


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
    added = AddBenchmark(benchmark=benchmark_of(name, task, content, key))
    await deps.decide_everywhere(admin, MODEL, added)
    return await BENCHMARK.retrieve(deps, {}, name)


@router.delete("/v1/gate/benchmarks/{name}")
async def remove_benchmark(name: Name, deps: WithDeps, admin: Admin) -> Deleted:
    """Remove a benchmark: new jobs and policies cannot name it.

    Jobs that were submitted still ask it, and verdicts keep its hash. A benchmark that a policy
    names is not removed: 409 says which.
    """
    await BENCHMARK.find(deps, {}, name)
    for policy in await deps.views.page(POLICIES, {}, limit=POLICIES_MAX, descending=False):
        if name in policy.policy.benchmarks:
            base_id = "default" if policy.id == EVERY_BASE else policy.id
            used = refusing("benchmark_in_policy", name=name, base_id=base_id)
            raise refused(errors.ILLEGAL_STATE, refusal_words(used), "name")
    await deps.decide_everywhere(admin, MODEL, RemoveBenchmark(name=name))
    return Deleted(id=name, object="gate.benchmark")


def benchmark_of(name: str, task: Task, content: bytes, key: str) -> Benchmark:
    """A benchmark as it is written on the log. key: of its blob."""
    return build_from(
        Benchmark,
        task.header,
        name=name,
        sha256=sha256(content).hexdigest(),
        blob=key,
        bytes=len(content),
        items=len(task.items),
    )


async def _body(request: Request) -> bytes:
    """The whole body. Raises ApiError 413."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BYTES_MAX:
            text = f"A benchmark has at most {BYTES_MAX} bytes."
            raise ApiError(413, BODY_TOO_LARGE, text, "body")
    return bytes(content)
