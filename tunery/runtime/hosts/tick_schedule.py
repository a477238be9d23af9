"""Times at which the keys of a partition want a tick, kept with the fold of its owner.

A heap has one entry for each part of the state with a deadline, and the moment in it is never later
than the deadline. A record adds the parts that it changes. What a later record postponed or removed
is noticed once its old moment has come: the deadline is computed again before a tick is sent.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from schemas.envelope import Context, Entry, Rejected
from schemas.units import Ms
from tunery.runtime.ids import NewId
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.verbs import Deadlines, TimedPart

S = TypeVar("S")


class _Sent(NamedTuple):
    """A tick that is not decided yet, and the parts that were due for it."""

    command_id: str
    parts: list[TimedPart]


class TickSchedule(Generic[S]):
    """Mutable: it follows one fold, and is made anew where that is thrown away.

    visits: how many deadlines were computed so far, for tests and benches.
    """

    def __init__(
        self, deadlines: Deadlines[S], state: S, limits: HostLimits, fresh_id: NewId
    ) -> None:
        """Compute the deadline of every part; no method does that again."""
        self._deadlines, self._limits, self._fresh_id = deadlines, limits, fresh_id
        self._moments: dict[TimedPart, Ms] = {}
        self._sent: dict[str, _Sent] = {}
        self._not_before: dict[str, Ms] = {}  # of the next tick, by key
        self.visits = 0
        for part in deadlines.parts(state):
            if (at := self._deadline(state, part)) is not None:
                self._moments[part] = at
        self._heap = [(at, part) for part, at in self._moments.items()]
        heapify(self._heap)

    def earliest(self) -> Ms | None:
        """Return a time before which no key is due; None: no key has a deadline."""
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)  # the part has an earlier entry, or had one
        return self._heap[0][0] if self._heap else None

    def note(self, state: S, record: Entry | Context, events: tuple[Any, ...]) -> None:
        """Take in a decided record; `state` is the fold's after it."""
        for event in events:
            for part in self._deadlines.changed(state, record.key, event):
                self._add(state, part)
        sent = self._sent.get(record.key)
        if sent is not None and sent.command_id == record.command_id:
            had_effect = any(type(event) is not Rejected for event in events)
            self.note_tick(state, record.key, record.at, had_effect=had_effect)

    def note_tick(self, state: S, key: str, at: Ms, *, had_effect: bool) -> None:
        """Note that the tick of a key was decided, or could not be sent."""
        limits = self._limits
        pause_ms = limits.tick_again_ms if had_effect else limits.tick_every_ms
        waits_until = self._not_before[key] = at + pause_ms
        parts = self._sent.pop(key).parts
        for part in parts:
            self._add(state, part)
        if not any(self._moments.get(part, waits_until) < waits_until for part in parts):
            del self._not_before[key]

    def take_due(self, state: S, at: Ms) -> dict[str, str]:
        """The id of a new tick for each key that is due, in the order of their deadlines.

        The rest is due still when `ticks_max` of them are on their way.
        """
        due: dict[str, str] = {}
        while (earliest := self.earliest()) is not None and earliest <= at:
            part = self._heap[0][1]
            key, waits_until = part.key, self._not_before.get(part.key, at)
            if waits_until > at:  # a tick is on its way, or was decided a moment ago
                self._move(part, waits_until)
                if key in self._sent:
                    self._sent[key].parts.append(part)
                continue
            if key not in self._sent and len(self._sent) >= self._limits.ticks_max:
                break
            deadline = self._deadline(state, part)
            if deadline is None or deadline > at:
                self._move(part, deadline)
                continue
            due[key] = self._fresh_id()
            self._sent[key] = _Sent(due[key], [])
            self._not_before[key] = at + self._limits.tick_lost_ms
        return due

    def _deadline(self, state: S, part: TimedPart) -> Ms | None:
        self.visits += 1
        return self._deadlines.at(state, part)

    def _add(self, state: S, part: TimedPart) -> None:
        at = self._deadline(state, part)
        known = self._moments.get(part)
        if at is not None and (known is None or at < known):
            self._moments[part] = at
            heappush(self._heap, (at, part))

    def _move(self, part: TimedPart, at: Ms | None) -> None:
        """Replace the first entry of the heap."""
        heappop(self._heap)
        if at is None:
            del self._moments[part]
        else:
            self._moments[part] = at
            heappush(self._heap, (at, part))
