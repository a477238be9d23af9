"""The hosts of the composition root on a log in memory: a month closes by itself."""

import asyncio

from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT
from services.billing.app import ACCOUNTS, TENANTS
from services.billing.effect import close
from tests.hosts import running
from tests.unit.services.billing.domain.test_decide import create_tenant
from tests.unit.services.billing.domain.test_statements import goodwill
from tests.unit.services.billing.test_effect import FakeBooks
from tunery.billing.periods import CLOSE_AFTER_MS, period_of
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector

WAIT_S = 180


class Ahead(SystemClock):
    """The system clock, `ahead_ms` milliseconds in the future."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def closed(runtime: Runtime) -> list[str]:
    """Names of the months that are closed."""
    rows = await runtime.store.rows("statements")
    return [row["period"] for row in rows if row.get("statement") is not None]


async def test_a_month_that_is_over_is_closed_once_and_the_next_one_follows() -> None:
    clock = Ahead()
    here = await memory_servers(clock)
    runtime = here.runtime("billing")
    books = FakeBooks(at=(0,) * PARTITIONS)
    hosts = (
        AggregateHost(runtime, ACCOUNTS),
        Projector(runtime, TENANTS),
        EffectHost(runtime, (close(here.log, books),)),
    )
    async with running(*hosts), asyncio.timeout(WAIT_S):
        await runtime.sender.send(ACCOUNT, "acme", "acme", create_tenant())
        for number, month in enumerate(("first", "second"), start=1):
            clock.ahead_ms += 32 * 24 * 3_600_000 if number == 2 else _to_the_end(clock)
            said = goodwill(reference=month)  # a command brings the time of day
            await runtime.sender.send(ACCOUNT, "acme", "acme", said)
            while len(await closed(runtime)) < number:  # noqa: ASYNC110  # other tasks write it
                await asyncio.sleep(0.01)
    first, second = sorted(await closed(runtime))
    assert period_of(clock.now_ms()).name > second > first
    assert books.asked is not None
    assert books.asked.month.name == second


def _to_the_end(clock: Ahead) -> int:
    now_ms = clock.now_ms()
    return period_of(now_ms).end_ms + CLOSE_AFTER_MS - now_ms
