"""A service over the event core's toy stream: a view, to-do rows, an effect."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from examples.first_stream import SEATS, SEATS_AGGREGATE, ReleaseSeats, SeatsHeld, SeatsReleased
from schemas.envelope import Header
from simulator.event_core.streams import STREAMS
from tests.hosts import running
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.backoff import Backoff
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.store.abstract import CommandResult, Store
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Change, Delete, Done, Effect, Send, Todo, Upsert

WAIT_S = 180


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """One row for each key with what it holds, and a to-do row that gives it back."""
    match event:
        case SeatsHeld():
            row = Upsert("held", {"key": header.key}, {"seats": event.seats, "at": header.at})
            return (row, Todo("give", header.key, header.key, header.tenant, event))
        case SeatsReleased():
            return (Delete("held", {"key": header.key}), Done("give", header.key))
        case _:
            return ()


def notify(header: Header, event: Any) -> str | None:
    return header.key if isinstance(event, SeatsHeld) else None


HELD = Projection(
    name="held",
    version=1,
    streams=(SEATS,),
    project=project,
    tables=("held",),
    command_results=True,
    notify=notify,
)


def give_back(before: Callable[[SeatsHeld, str], None], tries_max: int = 5) -> Effect[SeatsHeld]:
    """`before` is called first and may raise."""

    async def run(body: SeatsHeld, tenant: str, _: int = 1) -> Send | None:
        before(body, tenant)
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    def exhausted(body: SeatsHeld, tenant: str, failure: str) -> Send:
        return Send("seats", tenant, tenant, ReleaseSeats(seats=body.seats))

    return Effect(
        "give", SeatsHeld, run, exhausted, tries_max=tries_max, delay_ms=Backoff(10, 100).delay_ms
    )


@dataclass
class Toy:
    world: MemoryServers
    runtime: Runtime
    sent: list[str] = field(default_factory=list)

    async def send(self, key: str, body: Any) -> str:
        self.sent.append(await self.runtime.sender.send("seats", key, key, body))
        return self.sent[-1]

    def again(self, store: MemoryStore | None = None) -> "Toy":
        """This service in another process."""
        return Toy(self.world, toy_runtime(self.world, store or self.runtime.store), self.sent)


def toy_runtime(shared: MemoryServers, store: Any = None) -> Runtime:
    return replace(shared.runtime("toy", store), sender=Sender(shared.log, STREAMS))


@asynccontextmanager
async def toy() -> AsyncIterator[Toy]:
    """The toy stream with its owner running."""
    shared = await memory_servers(SystemClock(), (SEATS,))
    service = Toy(shared, toy_runtime(shared))
    owner = AggregateHost(service.runtime, SEATS_AGGREGATE)
    async with running(owner):
        yield service


async def until(condition: Callable[[], Awaitable[Any]], wait_s: float = WAIT_S) -> None:
    """Wait until the awaitable that `found` gives has a true result."""
    async with asyncio.timeout(wait_s):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def await_result(store: Store, command_id: str, wait_s: float = WAIT_S) -> CommandResult:
    """What became of the command, once the projection has it."""

    async def there() -> bool:
        return await store.command_result(command_id) is not None

    await until(there, wait_s)
    result = await store.command_result(command_id)
    assert result is not None
    return result
