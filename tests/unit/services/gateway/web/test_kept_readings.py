"""Readings that requests share."""

from services.gateway.web.kept_readings import KEPT_SHARE, KeptReadings
from tunery.runtime.clock import SystemClock

KEPT_MS = 1_000


class Hands(SystemClock):
    at = 0

    def monotonic_ms(self) -> int:
        return self.at


async def test_a_slow_reading_is_kept_longer_and_the_least_recent_is_dropped() -> None:
    clock, read = Hands(), list[str]()

    async def slowly(name: str) -> int:
        read.append(name)
        clock.at += KEPT_MS
        return len(read)

    kept = KeptReadings(slowly, clock, KEPT_MS, names_max=2)
    assert await kept.get("a") == 1
    clock.at += KEPT_SHARE * KEPT_MS
    assert await kept.get("a") == 1
    clock.at += 1
    assert await kept.get("a") == 2
    assert [await kept.get(name) for name in ("b", "c", "b", "a")] == [3, 4, 3, 5]
    assert read == ["a", "a", "b", "c", "a"]
