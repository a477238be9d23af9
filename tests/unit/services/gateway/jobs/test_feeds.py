"""Followers of jobs lose no event, however many, slow or late they are."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final

import pytest

from services.gateway.jobs import feeds
from services.gateway.jobs.feeds import FeedEvent, Feeds, FeedSource, JobKey, Positions
from services.gateway.views.ports import Cursor, Where
from services.gateway.views.table import Table
from services.gateway.views.tables.jobs import JOB_EVENTS, JOBS, STEPS
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.domain.responses import ListItem
from tunery.runtime.clock import SystemClock
from tunery.runtime.store.memory import MemoryStore

JOB: Final[JobKey] = ("acme", "ftjob-1")
FOLLOWERS: Final = 200
STEPS_SENT: Final = 300


def shape(row: Any) -> ListItem:
    return ListItem(id=row.id)


BOTH: Final = (FeedSource(JOB_EVENTS, shape), FeedSource(STEPS, shape))
STEPS_ONLY: Final = (FeedSource(STEPS, shape),)


class Rows:
    """Implements `Views` over lists that grow; counts the reads."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {JOBS.name: [], STEPS.name: []}
        self.reads = 0
        self.set_phase("running")

    def set_phase(self, phase: str, finished_at: int | None = None) -> None:
        self.tables[JOBS.name] = [SimpleNamespace(phase=phase, finished_at=finished_at)]

    def add(self, table: Table[Any], event_id: str) -> None:
        self.tables.setdefault(table.name, []).append(SimpleNamespace(id=event_id))

    async def sums(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def first(self, table: Table[Any], where: Where) -> Any:
        return next(iter(self.tables[table.name]), None)

    async def page(
        self,
        table: Table[Any],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[Any]:
        assert after is not None
        assert not descending
        self.reads += 1
        await asyncio.sleep(0)
        rows = sorted(self.tables.get(table.name, []), key=attrgetter("id"))
        return [row for row in rows if row.id > after.id][:limit]


@asynccontextmanager
async def running(views: Any, store: MemoryStore | None = None) -> AsyncIterator[Feeds]:
    clock = SystemClock()
    feeds_host = Feeds(store or MemoryStore(clock), views, clock, late_ms=0)
    task = asyncio.create_task(feeds_host.run())
    await feeds_host.ready()
    try:
        yield feeds_host
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def followed(
    followed_feeds: Feeds,
    sources: Sequence[FeedSource],
    positions: Positions,
    pauses: random.Random | None,
) -> list[FeedEvent]:
    seen: list[FeedEvent] = []
    async for batch in followed_feeds.follow(JOB, "k", sources, positions):
        seen += batch
        if pauses is not None:
            await asyncio.sleep(pauses.random() / 100)
    return seen


def wake(followed_feeds: Feeds) -> None:
    followed_feeds._wake("acme/ftjob-1")


async def test_two_hundred_followers_lose_nothing_and_share_their_reads() -> None:
    views = Rows()
    async with running(views) as followed_feeds:
        followers = [
            asyncio.create_task(
                followed(followed_feeds, STEPS_ONLY, ("",), random.Random(n) if n % 2 else None)
            )
            for n in range(FOLLOWERS)
        ]
        for step in range(STEPS_SENT):
            views.add(STEPS, f"{step:06}")
            wake(followed_feeds)
            await asyncio.sleep(0)
        views.set_phase("done", finished_at=0)
        wake(followed_feeds)
        seen = await asyncio.gather(*followers)
    wanted = [f"{step:06}" for step in range(STEPS_SENT)]
    assert all([event.id for event in events] == wanted for events in seen)
    assert views.reads <= 4 * STEPS_SENT  # not once for each follower


async def test_a_source_that_is_behind_the_other_loses_nothing() -> None:
    """The journal's message is older than the step that came before it."""
    views = Rows()
    async with running(views) as followed_feeds:
        follower = asyncio.create_task(followed(followed_feeds, BOTH, ("", ""), None))
        views.add(STEPS, "5")
        await asyncio.sleep(0.01)
        views.add(JOB_EVENTS, "3")
        wake(followed_feeds)
        await asyncio.sleep(0.01)
        views.set_phase("done", finished_at=0)
        wake(followed_feeds)
        seen = await follower
        assert [event.id for event in seen] == ["5", "3"]
        assert seen[0].positions == ("", "5")
        assert seen[1].positions == ("3", "5")
        again = await followed(followed_feeds, BOTH, seen[0].positions, None)
    assert [event.id for event in again] == ["3"]


async def test_events_that_left_the_tail_are_read_from_the_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "TAIL_MAX", 10)
    monkeypatch.setattr(feeds, "PAGE", 7)
    views = Rows()
    async with running(views) as followed_feeds:
        fast = asyncio.create_task(followed(followed_feeds, BOTH, ("", ""), None))
        slow = asyncio.create_task(followed(followed_feeds, BOTH, ("", ""), random.Random(1)))
        for number in range(100):
            views.add(STEPS if number % 3 else JOB_EVENTS, f"{number:06}")
            wake(followed_feeds)
            await asyncio.sleep(0)
        views.set_phase("done", finished_at=0)
        wake(followed_feeds)
        for seen in await asyncio.gather(fast, slow):
            assert sorted(event.id for event in seen) == [f"{number:06}" for number in range(100)]
        late = await followed(followed_feeds, BOTH, ("", ""), None)
    assert [event.id for event in late] == [f"{number:06}" for number in range(100)]


async def test_a_follower_above_the_limit_gets_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FOLLOWERS_MAX", 1)
    async with running(Rows()) as followed_feeds:
        first = asyncio.create_task(followed(followed_feeds, STEPS_ONLY, ("",), None))
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError):
            await followed(followed_feeds, STEPS_ONLY, ("",), None)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        assert not followed_feeds._feeds  # a feed without followers is dropped


async def test_security_m2_a_tenant_has_a_limit_of_followers() -> None:
    """A key could open all 1,000 streams, and others got none."""
    other = ("other", "ftjob-1")
    async with running(Rows()) as followed_feeds:
        first = asyncio.create_task(followed(followed_feeds, STEPS_ONLY, ("",), None))
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="streams_max") as refused:
            async for _ in followed_feeds.follow(JOB, "k", STEPS_ONLY, ("",), 1):
                pass
        assert refused.value.status == 429
        batches = followed_feeds.follow(other, "k", STEPS_ONLY, ("",), 1)
        follower = asyncio.ensure_future(anext(aiter(batches)))
        await asyncio.sleep(0.01)
        assert not follower.done(), "another tenant follows"
        for task in (first, follower):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_commits_of_both_projections_wake_the_followers() -> None:
    store = MemoryStore(SystemClock())
    views = Rows()
    async with running(views, store) as followed_feeds:
        follower = asyncio.create_task(followed(followed_feeds, STEPS_ONLY, ("",), None))
        await asyncio.sleep(0.01)
        for number, channel in enumerate(feeds.CHANNELS):
            views.add(STEPS, str(number))
            store._notify(channel, "acme/ftjob-1")
            await asyncio.sleep(0.01)
        views.set_phase("done", finished_at=0)
        store._notify(feeds.CHANNELS[0], "")
        assert [event.id for event in await follower] == ["0", "1"]


async def test_followers_look_by_themselves_while_the_host_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "UNWOKEN_MS_MAX", 20)
    views, clock = Rows(), SystemClock()
    without_host = Feeds(MemoryStore(clock), views, clock, late_ms=0)
    follower = asyncio.create_task(followed(without_host, STEPS_ONLY, ("",), None))
    await asyncio.sleep(0.05)
    views.add(STEPS, "1")
    views.set_phase("done", 0)
    async with asyncio.timeout(180):
        assert [event.id for event in await follower] == ["1"]
