"""Given events, when a command: one decider with its fold, and bytes in between as on the log."""

from typing import Any

import msgspec

from schemas.envelope import Context, Header, Message, Rejected, Tick
from schemas.streams import Stream
from schemas.units import GpuMs, Ms
from services.scheduler.domain.job.quota import rest_gpu_ms
from services.scheduler.domain.job.state import TenantJobs
from tests.ticks import next_tick
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.verbs import Aggregate


def header_of(stream: str, key: str, at: Ms, offset: int = 0) -> Header:
    """Header of a journal's entry, as reactions and projections get it."""
    return Header(
        stream=stream,
        partition=0,
        offset=offset,
        at=at,
        key=key,
        tenant=key,
        seq=0,
        command_id="0" * 32,
        incarnation=0,
    )


class Decider:
    """State of one partition. `at` is its clock, which only the test moves."""

    def __init__(self, aggregate: Aggregate[Any], key: str, at: int) -> None:
        self.aggregate, self.key, self.at = aggregate, key, at
        self.state = aggregate.initial
        self.journal: list[tuple[Context, tuple[Message, ...]]] = []

    def when(self, command: Message, key: str | None = None) -> tuple[Any, ...]:
        """Decide, write, read back, fold."""
        stream = self.aggregate.stream
        ctx = self._context(key or self.key)
        decided = self.aggregate.decide(self.state, through(stream, command, "command"), ctx)
        events = tuple(through(stream, event, "event") for event in decided)
        assert events == decided
        for event in events:
            self.state = self.aggregate.evolve(self.state, event, ctx)
        self.journal.append((ctx, events))
        return events

    def fold(self, *events: Message) -> None:
        """Fold events that today's decider does not write, as if it had."""
        ctx = self._context(self.key)
        for event in events:
            self.state = self.aggregate.evolve(
                self.state, through(self.aggregate.stream, event, "event"), ctx
            )
        self.journal.append((ctx, events))

    def _context(self, key: str) -> Context:
        return Context(
            at=self.at,
            key=key,
            tenant=key,
            command_id="0" * 32,
            seq=len(self.journal) + 1,
        )

    def accept(self, *commands: Message) -> "Decider":
        """Decide them all; none may be refused."""
        for command in commands:
            events = self.when(command)
            assert not any(isinstance(event, Rejected) for event in events), events
        return self

    def due(self) -> Ms | None:
        """When the state wants a tick."""
        deadline = next_tick(self.aggregate, self.state)
        return None if deadline is None else deadline[0]

    def tick(self) -> tuple[Any, ...]:
        """Let time pass until a tick is due; what it leads to."""
        due = self.due()
        assert due is not None
        self.at = due
        return self.when(Tick())

    def refolded(self) -> Any:
        state = self.aggregate.initial
        for ctx, events in self.journal:
            for event in events:
                state = self.aggregate.evolve(state, event, ctx)
        return state


def through(stream: Stream, message: Message, kind: str) -> Any:
    """The message as its reader gets it."""
    codec = codec_of(stream)
    decoder = codec.command_decoder if kind == "command" else codec.event_decoder
    return decoder.decode(msgspec.json.encode(message))


def of(events: tuple[Any, ...], kind: type[Any]) -> Any:
    """The one event of this kind."""
    matching = [event for event in events if isinstance(event, kind)]
    assert len(matching) == 1, f"{len(matching)} × {kind.__name__} in {events}"
    return matching[0]


def open_gpu_ms(tenant: TenantJobs) -> GpuMs:
    """The unused rest of all open holds."""
    return sum(rest_gpu_ms(job) for job in tenant.jobs.values())


def names(events: tuple[Any, ...]) -> list[str]:
    return [type(event).__name__ for event in events]
