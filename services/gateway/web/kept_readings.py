"""Readings that are kept for a moment, so that many requests cost one reading."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from schemas.units import Ms
from tunery.runtime.clock import Clock
from tunery.runtime.tasks import result_of, retrieve

KEPT_SHARE: Final = 10  # a reading is kept for so many times as long as it took, if that is longer
T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    value: T
    fresh_until: Ms  # time from which it is read again
    shown_until: Ms  # time until which it is shown meanwhile


class KeptReadings(Generic[T]):
    """Values by name, each read at most once at a time, by `read`.

    kept_ms: how long a value is fresh; shown: for how many times as long it may be shown while it
    is read again; names_max: of how many names a value is kept, those that were read last.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[T]],
        clock: Clock,
        kept_ms: Ms,
        *,
        shown: int = 1,
        names_max: int,
    ) -> None:
        self._read_value, self._clock = read, clock
        self._kept_ms, self._shown, self._names_max = kept_ms, shown, names_max
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._readings: dict[str, asyncio.Task[_Kept[T]]] = {}

    async def get(self, name: str) -> T:
        """Return the value of a name. Raises what `read` raises."""
        kept = self._kept.get(name)
        # by the clock that does not jump: an old value must not be kept because time went back
        now = self._clock.monotonic_ms()
        if kept is None or now > kept.fresh_until:
            reading = self._reading(name)
            if kept is None or now > kept.shown_until:
                await asyncio.wait((reading,))  # which a request that is given up does not end
                kept = result_of(reading)
        return kept.value

    def _reading(self, name: str) -> "asyncio.Task[_Kept[T]]":
        """Return the reading that is under way; a new one if there is none."""
        reading = self._readings.get(name)
        if reading is None or reading.done():  # cancelled before it began
            reading = asyncio.create_task(self._read(name), name=f"read {name}")
            reading.add_done_callback(retrieve)
            self._readings[name] = reading
        return reading

    async def _read(self, name: str) -> _Kept[T]:
        try:
            began = self._clock.monotonic_ms()
            value = await self._read_value(name)
            now = self._clock.monotonic_ms()
            fresh_ms = max(self._kept_ms, KEPT_SHARE * (now - began))
            kept = _Kept(value, now + fresh_ms, now + self._shown * fresh_ms)
            self._kept[name] = kept
            self._kept.move_to_end(name)
            if len(self._kept) > self._names_max:
                self._kept.popitem(last=False)
            return kept
        finally:
            del self._readings[name]
