"""Expectations about a lease: its end, and the loss if it is stopped.

Both change at predictable moments, so that a plan need not ask every lease again.
"""

from typing import Final

from schemas.units import PPM, Ms
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import Running

# What has passed its expected end is expected to go on for a tenth of the time that it has run
# already, and for a minute at least. A lease with an order to end is expected to end any moment.
OVERRUN_MS_MIN: Final[Ms] = 60_000
OVERRUN_SHARE: Final = 10
ANY_MOMENT_MS: Final[Ms] = 10_000
# That time is rounded down to so much in the first ten minutes, and to twice as much whenever it
# has doubled: then an expected end stays what it is for a while.
ROUNDING_MS: Final[Ms] = 4_000
ROUNDED_MS: Final[Ms] = 600_000


def expected_end(running: Running, at: Ms, lasts_ms: Ms | None = None) -> Ms:
    """Expected time at which a lease frees its slots; always after now.

    lasts_ms: how long it is expected to last. None: its p90.
    """
    lasts_ms = running.p90_ms if lasts_ms is None else lasts_ms
    if running.ends_by is not None:
        if running.ends_by > at:
            return running.ends_by
        return running.ends_by + _rounded_ms(at - running.ends_by, ANY_MOMENT_MS) + ANY_MOMENT_MS
    began = running.granted_at if running.started_at is None else running.started_at
    if began + lasts_ms > at:
        return began + lasts_ms
    ran_ms = _rounded_ms(at - began, _rounding_ms(at - began))
    return began + ran_ms + max(OVERRUN_MS_MIN, ran_ms // OVERRUN_SHARE)


def _rounded_ms(time_ms: Ms, rounding_ms: Ms) -> Ms:
    return time_ms // rounding_ms * rounding_ms


def _rounding_ms(ran_ms: Ms) -> Ms:
    return ROUNDING_MS << (ran_ms // ROUNDED_MS).bit_length()


def _end_changes_at(running: Running, at: Ms) -> Ms:
    """When a lease is expected to end at another time, if it has not ended."""
    began = running.granted_at if running.started_at is None else running.started_at
    if running.ends_by is not None or began + running.p90_ms > at:
        return expected_end(running, at)
    rounding_ms = _rounding_ms(at - began)
    return began + _rounded_ms(at - began, rounding_ms) + rounding_ms


def loss_ms(running: Running, at: Ms, policy: Policy) -> Ms | None:
    """Return the time that a lease would lose by a stop now; None: too much, or it is protected."""
    if (
        not is_stoppable(running, policy)
        or running.started_at is None
        or at - running.started_at < policy.ran_ms_min
        or _left_ms(running, running.started_at, at) <= policy.restart_ms
    ):
        return None
    lost_ms = at - running.saved_at + policy.restart_ms
    return lost_ms if lost_ms <= bound_ms(running, policy) else None


def _left_ms(running: Running, began: Ms, at: Ms) -> Ms:
    """Expected remaining time of a lease; past its expected end a tenth of its time."""
    left_ms = began + running.p90_ms - at
    return left_ms if left_ms > 0 else (at - began) // OVERRUN_SHARE


def is_stoppable(running: Running, policy: Policy) -> bool:
    """Return whether a lease may ever be stopped, given what is known now."""
    return (
        running.lane > 0
        and running.ends_by is None
        and running.started_at is not None
        and running.preemptions < policy.preemptions_max
    )


def bound_ms(running: Running, policy: Policy) -> Ms:
    """Return the most that a stop may cost a lease: a share of the time that it was estimated to
    need.
    """
    estimate_ms = running.p50_ms if running.estimate_ms is None else running.estimate_ms
    return min(estimate_ms * policy.loss_ppm // PPM, policy.loss_ms_max)


def next_change(running: Running, at: Ms, policy: Policy) -> Ms:
    """The next time at which one of these expectations changes."""
    ends_at = _end_changes_at(running, at)
    if not policy.preempting or not is_stoppable(running, policy) or running.started_at is None:
        return ends_at
    nominal_end = running.started_at + running.p90_ms
    changes = (
        running.started_at + policy.ran_ms_min,
        running.saved_at + bound_ms(running, policy) - policy.restart_ms + 1,
        nominal_end - policy.restart_ms,
        nominal_end,
        running.started_at + (policy.restart_ms + 1) * OVERRUN_SHARE,
        ends_at,
    )
    return min(change for change in changes if change > at)
