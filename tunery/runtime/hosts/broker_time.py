"""Broker time as one owner believes it: not far ahead of what the owner's own clocks say.

The time of a decision never runs back. A broker whose clock is an hour ahead for one record would
therefore stop the time of a partition for an hour: nothing would be billed, no deadline would pass.
"""

from typing import Final

from schemas.units import Ms
from tunery.runtime.clock import Clock

AHEAD_MS_MAX: Final[Ms] = 60_000  # clocks of brokers differ by less, as far as they are kept
DRIFT_PER_CENT: Final = 1  # of the time that has passed: how fast a broker's clock may gain


class BrokerTime:
    """Bounds the timestamps of records.

    One of two clocks has to confirm them: the owner's monotonic one, counted from its claim, or its
    wall clock, which goes on while the machine sleeps.
    """

    def __init__(self, clock: Clock, decided_at: Ms, claimed_at: Ms) -> None:
        """`decided_at`: of the last decision in the journal; `claimed_at`: of the claim."""
        self._clock, self._since_ms = clock, clock.monotonic_ms()
        self._at = min(claimed_at, max(decided_at, clock.now_ms()))

    def now(self) -> Ms:
        """The newest broker time that was believed, and what has passed since then."""
        return self._at + self._clock.monotonic_ms() - self._since_ms

    def believe(self, timestamp: Ms) -> Ms:
        """The timestamp, or the latest time that it may be."""
        monotonic_ms = self._clock.monotonic_ms()
        passed_ms = monotonic_ms - self._since_ms
        by_monotonic = self._at + passed_ms + passed_ms * DRIFT_PER_CENT // 100
        by_wall = self._clock.now_ms() + AHEAD_MS_MAX
        self._at = min(timestamp, max(by_monotonic, by_wall))
        self._since_ms = monotonic_ms
        return self._at
