"""An outage of one server while a job runs: what callers see meanwhile, and that it ends by itself.

A server is paused (SIGSTOP: connections stay open and nothing answers), or cut off (killed and not
started: its port is closed), and is back after some seconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, TypeAlias

import httpx

from tests.busy import busy_loops
from tests.e2e.stories import AGENT_A, Json, RunningStack, running_stack, training
from tunery.local.stack import ServiceSpec

ANSWER_S_MAX: Final = 50.0  # of a client that waits for REQUEST_S_MAX
ROUND_PAUSE_S: Final = 0.5
READY_S_MAX: Final = 180.0
LOAD_S_MAX: Final = 600
Way: TypeAlias = Literal["paused", "cut off"]
#: requests that fail while a server is away; without Valkey each gateway counts rates alone
REFUSED: Final[dict[str, set[str]]] = {
    "postgres": {"read", "submit", "upload"},
    "s3": {"upload"},
    "kafka": {"submit", "upload"},
    "valkey": set(),
}


@asynccontextmanager
async def without(home: RunningStack, server: str, way: Way) -> AsyncIterator[None]:
    """Take the server away inside the block, and bring it back after it."""
    if way == "paused":
        home.stack.pause(server)
    else:
        home.stack.kill(server, restart=False)
    try:
        yield
    finally:
        if way == "paused":
            home.stack.resume(server)
        else:
            await home.stack.start(server)


async def promptly(home: RunningStack, method: str, path: str, **arguments: Any) -> httpx.Response:
    """Send a request during an outage: it is answered in time; a 503 must have `retry-after`."""
    begun = time.monotonic()
    reply = await home.api.call(method, path, **arguments)
    took = time.monotonic() - begun
    assert took < ANSWER_S_MAX, f"{method} {path} took {took:.1f} s: {reply.text}"
    assert reply.is_success or reply.status_code == httpx.codes.SERVICE_UNAVAILABLE, reply.text
    if not reply.is_success:
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["code"] in {"service_unavailable", "not_decided_yet"}
    return reply


async def jobs_of(home: RunningStack, story: str) -> list[Json]:
    """The tenant's jobs whose metadata name this story."""
    answer = await home.api.get("/fine_tuning/jobs", **{"metadata[story]": story})
    listed: list[Json] = answer["data"]
    return listed


def an_upload(content: bytes, purpose: str = "fine-tune") -> dict[str, Any]:
    """Arguments of a request that uploads a file."""
    return {"data": {"purpose": purpose}, "files": {"file": ("rows.jsonl", content)}}


async def live_through(home: RunningStack, server: str, way: Way, seconds: float) -> set[str]:
    """Take a server away while a job trains; afterwards the job and all requests must succeed.

    From the outage to the first command after it the machine is busy, and everything is late.
    Returns which kinds of requests were refused meanwhile.
    """
    job_id = await home.submit(n_epochs=max(15, round(1.5 * seconds)))  # it outlasts the outage
    await home.api.job(job_id, training)
    story = f"{server} {way} for {seconds:.0f} s"
    body = home.request(metadata={"story": story})
    refused: set[str] = set()
    with busy_loops(LOAD_S_MAX):
        async with without(home, server, way):
            ended = time.monotonic() + seconds
            while time.monotonic() < ended:
                replies = await asyncio.gather(
                    promptly(home, "GET", f"/fine_tuning/jobs/{job_id}"),
                    promptly(
                        home,
                        "POST",
                        "/fine_tuning/jobs",
                        json=body,
                        headers={"Idempotency-Key": story},
                    ),
                    promptly(home, "POST", "/files", **an_upload(b"{}\n")),
                )
                names = ("read", "submit", "upload")
                refused |= {
                    name for name, reply in zip(names, replies, strict=True) if not reply.is_success
                }
                await asyncio.sleep(ROUND_PAUSE_S)
        second = await home.api.submit(body, story)
        assert [job["id"] for job in await jobs_of(home, story)] == [second]
    await home.api.post(f"/fine_tuning/jobs/{second}/cancel")
    job = await home.api.ended(job_id)
    assert job["attempt"] == 2, await home.api.messages(job_id)  # an outage ends no training
    assert (await home.bill(job_id))["credited_gpu_ms"] == 0
    await home.api.ended(second, "cancelled")
    assert (await home.bill(second))["net_gpu_ms"] == 0
    assert await is_ready(home), "all hosts of the gateway run again"
    return refused


async def is_ready(home: RunningStack) -> bool:
    """Whether the gateway is ready and a command is decided, within READY_S_MAX."""
    deadline = time.monotonic() + READY_S_MAX
    while time.monotonic() < deadline:
        try:
            readiness = await home.api.client.get("/readyz")
            if readiness.is_success:
                reply = await home.api.call("POST", "/files", **an_upload(b"{}\n"))
                if reply.is_success:
                    return True
        except httpx.TransportError:
            pass  # it is asked again until the deadline
        await asyncio.sleep(ROUND_PAUSE_S)
    return False


class SharedStack:
    """The stack that the tests of a file share; it is replaced when a test has left it unusable.

    `prepare` is called with each new stack. `variables`: extra environment of services.
    `agents`: its only node, and stand-ins for services.
    """

    def __init__(
        self,
        prepare: Callable[[RunningStack], Awaitable[None]] | None = None,
        agents: tuple[ServiceSpec, ...] = (AGENT_A,),
        **variables: Mapping[str, str],
    ) -> None:
        self._prepare, self._agents, self._variables = prepare, agents, variables
        self._stack: AsyncExitStack | None = None
        self._home: RunningStack | None = None

    async def ready(self) -> RunningStack:
        """The shared stack, ready and with no job of an earlier test under way."""
        if self._home is not None:
            if await is_ready(self._home) and await cancel_jobs(self._home):
                return self._home
            await self.close()
        self._stack = AsyncExitStack()
        running = await self._stack.enter_async_context(
            running_stack(self._agents, **self._variables)
        )
        if self._prepare is not None:
            await self._prepare(running)
        self._home = running
        return running

    async def close(self) -> None:
        """Stop the shared stack, if there is one."""
        if self._stack is not None:
            ending, self._stack, self._home = self._stack, None, None
            await ending.aclose()


async def cancel_jobs(home: RunningStack) -> bool:
    """Cancel what a failed test left; returns whether it has all ended."""
    try:
        for job in (await home.api.get("/fine_tuning/jobs", limit=100))["data"]:
            if job["status"] not in ("succeeded", "failed", "cancelled"):
                await home.api.patiently("POST", f"/fine_tuning/jobs/{job['id']}/cancel")
                await home.api.job(job["id"], lambda state: state["phase"] == "done", READY_S_MAX)
    except (AssertionError, TimeoutError):
        return False
    return True
