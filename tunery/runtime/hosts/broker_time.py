"""Broker time that an owner accepts: bounded by the owner's own clocks.

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
    wall clock, which continues while the machine sleeps.
    """

    def __init__(self, clock: Clock, decided_at: Ms, claimed_at: Ms) -> None:
        """`decided_at`: of the last decision in the journal; `claimed_at`: of the claim."""
        self._clock, self._since_ms = clock, clock.monotonic_ms()
        self._wall_ms = clock.now_ms()  # when the newest broker time was believed
        self._at = min(claimed_at, max(decided_at, self._wall_ms))

    def now(self) -> Ms:
        """The newest broker time that was believed, and what has passed since then.

        While a machine sleeps only its wall clock runs. One that was set meanwhile makes a tick go
        out too early: it changes nothing, and its timestamp is believed instead.
        """
        passed_ms = self._clock.monotonic_ms() - self._since_ms
        return self._at + max(passed_ms, self._clock.now_ms() - self._wall_ms)

    def believe(self, timestamp: Ms) -> Ms:
        """The timestamp, or the latest time that it may be."""
        monotonic_ms = self._clock.monotonic_ms()
        passed_ms = monotonic_ms - self._since_ms
        by_monotonic = self._at + passed_ms + passed_ms * DRIFT_PER_CENT // 100
        self._wall_ms = self._clock.now_ms()
        self._at = min(timestamp, max(by_monotonic, self._wall_ms + AHEAD_MS_MAX))
        self._since_ms = monotonic_ms
        return self._at
