"""Streams of job events: all followers of a job share one read of the read models.

A follower is a position in each source, so a slow or late one loses nothing: events that have left
the tail in memory are read from the tables again. Each source has its own position, because two
projections write them, each in order, and either may be ahead.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, TypeAlias

from schemas.units import Ms
from services.gateway.views.ports import Cursor, Views, Where
from services.gateway.views.table import Table
from services.gateway.views.tables.jobs import JOBS
from services.gateway.web.domain.errors import UNAVAILABLE, ApiError, above_limit
from services.gateway.web.domain.responses import ListItem
from tunery.runtime.clock import Clock
from tunery.runtime.store.abstract import Store
from tunery.runtime.watchdog import beat, watched_loop

CHANNELS: Final = ("views", "telemetry")  # of notices by the projections that write rows of jobs
FOLLOWERS_MAX: Final = 1_000  # of one process
TAIL_MAX: Final = 1_000  # events of one source that are kept in memory
PAGE: Final = 500
POLL_MS: Final[Ms] = 5_000  # look again after this, in case a notice was lost
UNWOKEN_MS_MAX: Final[Ms] = 2 * POLL_MS
LATE_MS: Final[Ms] = 3_000  # steps may be projected this long after the end of their job

JobKey: TypeAlias = tuple[str, str]  # tenant, job
Positions: TypeAlias = tuple[str, ...]  # one id for each source; "" is the beginning


@dataclass(frozen=True)
class FeedSource:
    """Rows of a table, and the response that one of them becomes."""

    table: Table[Any]
    shape: Callable[[Any], ListItem]


@dataclass(frozen=True)
class FeedEvent:
    """An event as it is sent to followers."""

    id: str
    body: ListItem
    positions: Positions  # positions of a follower that has this event and all before it


class Tail:
    """The newest events of one source: all after `since`."""

    def __init__(self, source: FeedSource, where: Where, since: str) -> None:
        self._source, self._where = source, where
        self._since = self._newest = since
        self._kept: deque[tuple[str, ListItem]] = deque()

    async def refresh(self, views: Views) -> None:
        while len(rows := await self._read(views, self._newest)) > 0:
            self._kept.extend(rows)
            self._newest = rows[-1][0]
            while len(self._kept) > TAIL_MAX:
                self._since, _ = self._kept.popleft()
            if len(rows) < PAGE:
                return

    async def after(self, views: Views, position: str) -> Sequence[tuple[str, ListItem]]:
        """Up to PAGE events after a position, from the tables if they have left the tail."""
        if position < self._since:
            return await self._read(views, position)
        newer = [event for event in reversed(self._kept) if event[0] > position]
        return newer[: -PAGE - 1 : -1]

    async def _read(self, views: Views, position: str) -> Sequence[tuple[str, ListItem]]:
        after = Cursor(position, position)
        table = self._source.table
        rows = await views.page(table, self._where, limit=PAGE, after=after, descending=False)
        return [(row.id, self._source.shape(row)) for row in rows]


@dataclass
class Feed:
    """The state that all followers of one job and one kind of events share."""

    tails: tuple[Tail, ...]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)
    fresh: bool = False
    ended_at: Ms | None = None  # when the job ended
    followers: int = 0

    def wake(self) -> None:
        """Wake all followers that wait now."""
        self.fresh = False
        self.woken.set()
        self.woken = asyncio.Event()


class Feeds:
    """Implements `Host`: wakes the followers of a job when its rows are committed."""

    name = "feeds"

    def __init__(self, store: Store, views: Views, clock: Clock, *, late_ms: Ms = LATE_MS) -> None:
        self._store, self._views, self._clock = store, views, clock
        self._late_ms = late_ms
        self._feeds: dict[tuple[JobKey, str], Feed] = {}
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            for channel in CHANNELS:
                await stack.enter_async_context(self._store.listen(channel, self._wake))
            self._ready.set()
            with watched_loop(self.name):
                while True:
                    beat("waiting")
                    await self._clock.sleep(POLL_MS)
                    self._wake("")

    def _wake(self, notice: str) -> None:
        """Wake a feed by its notice `tenant/job`; all feeds by an empty one, which means a gap."""
        for (job, _), feed in self._feeds.items():
            if notice in ("", "/".join(job)):
                feed.wake()

    async def follow(
        self,
        job: JobKey,
        kind: str,
        sources: Sequence[FeedSource],
        positions: Positions,
        of_tenant_max: int = FOLLOWERS_MAX,
    ) -> AsyncIterator[Sequence[FeedEvent]]:
        """Batches of events after `positions`, until the job has ended and all of them were sent.

        An empty batch means that there was no event for up to POLL_MS. Raises ApiError for one
        follower too many: 429 above `of_tenant_max`, 503 above FOLLOWERS_MAX; StoreUnavailable.
        """
        self.check_limit(job[0], of_tenant_max)
        with self._joined(job, kind, sources, positions) as feed:
            while True:
                woken = feed.woken
                await self._refresh(feed, job)
                batch = await self._batch(feed, positions)
                if batch:
                    positions = batch[-1].positions
                elif feed.ended_at is not None:
                    late_ms = feed.ended_at + self._late_ms - self._clock.now_ms()
                    if late_ms <= 0:
                        return
                    await self._clock.sleep(late_ms)
                    feed.fresh = False
                    continue
                else:
                    await self._wait(feed, woken)
                yield batch

    def check_limit(self, tenant: str, of_tenant_max: int) -> None:
        """Raises ApiError 429 when the tenant has as many followers as its plan allows."""
        own = sum(feed.followers for (job, _), feed in self._feeds.items() if job[0] == tenant)
        if own >= of_tenant_max:
            raise above_limit("streams_max", of_tenant_max)

    async def _wait(self, feed: Feed, woken: asyncio.Event) -> None:
        """Wait until the followers are woken, or look anyway: their host may be away."""
        try:
            async with asyncio.timeout(UNWOKEN_MS_MAX / 1_000):
                await woken.wait()
        except TimeoutError:
            feed.fresh = False

    @contextmanager
    def _joined(
        self, job: JobKey, kind: str, sources: Sequence[FeedSource], positions: Positions
    ) -> Iterator[Feed]:
        if sum(feed.followers for feed in self._feeds.values()) >= FOLLOWERS_MAX:
            raise ApiError(503, UNAVAILABLE, f"{FOLLOWERS_MAX} streams are open here already.")
        where = {"tenant": job[0], "job_id": job[1]}
        feed = self._feeds.get((job, kind))
        if feed is None:
            tails = zip(sources, positions, strict=True)
            feed = Feed(tuple(Tail(source, where, since) for source, since in tails))
            self._feeds[job, kind] = feed
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if feed.followers == 0:
                del self._feeds[job, kind]

    async def _refresh(self, feed: Feed, job: JobKey) -> None:
        """Read new rows once for all followers that were woken; the job's state is read first."""
        async with feed.refreshing:
            if feed.fresh:
                return
            feed.fresh = True
            try:
                row = await self._views.first(JOBS, {"tenant": job[0], "id": job[1]})
                for tail in feed.tails:
                    await tail.refresh(self._views)
            except BaseException:
                feed.fresh = False
                raise
            if row is not None and row.phase == "done":
                feed.ended_at = row.finished_at

    async def _batch(self, feed: Feed, positions: Positions) -> list[FeedEvent]:
        """Events of all sources by id, which is by time; none later than the end of a full page."""
        pages = [
            await tail.after(self._views, position)
            for tail, position in zip(feed.tails, positions, strict=True)
        ]
        reached = min((page[-1][0] for page in pages if len(page) == PAGE), default=None)
        events = [
            (event_id, number, body)
            for number, page in enumerate(pages)
            for event_id, body in page
            if reached is None or event_id <= reached
        ]
        events.sort(key=itemgetter(0))
        batch = []
        for event_id, number, body in events:
            positions = (*positions[:number], event_id, *positions[number + 1 :])
            batch.append(FeedEvent(event_id, body, positions))
        return batch
