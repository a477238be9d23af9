"""What an aggregate says of its deadlines, computed for every part of a state."""

from typing import Any, Final

from schemas.envelope import Context
from schemas.units import Ms
from tunery.runtime.hosts.tick_schedule import TickSchedule
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.verbs import Aggregate

AT_ONCE: Final = HostLimits(tick_again_ms=0, tick_every_ms=0)


def next_tick(aggregate: Aggregate[Any], state: Any) -> tuple[Ms, str] | None:
    """The earliest deadline and its key; None: there is none."""
    deadlines = aggregate.deadlines
    if deadlines is None:
        return None
    computed = ((deadlines.at(state, part), part.key) for part in deadlines.parts(state))
    return min(((at, key) for at, key in computed if at is not None), default=None)


class CheckedTicks:
    """An owner's schedule of ticks, held against a pass over all parts each time it is asked.

    command_id: of every command of this world.
    """

    def __init__(self, aggregate: Aggregate[Any], command_id: str) -> None:
        assert aggregate.deadlines is not None
        self._aggregate = aggregate
        self._schedule: TickSchedule[Any] = TickSchedule(
            aggregate.deadlines, aggregate.initial, AT_ONCE, lambda: command_id
        )

    def note(self, state: Any, context: Context, events: tuple[Any, ...]) -> None:
        """Take in what was decided."""
        self._schedule.note(state, context, events)

    def is_due(self, state: Any, at: Ms) -> bool:
        """Whether a key wants a tick."""
        due = self._schedule.take_due(state, at)
        computed, scheduled = next_tick(self._aggregate, state), self._schedule.earliest()
        if computed is None:
            assert not due
        elif due:
            assert computed[0] <= at
        else:
            assert scheduled is not None
            assert at < scheduled <= computed[0]
        return bool(due)
