"""When work may run on spot machines, which their cloud takes away at short notice.

A job that allows spot machines gets them before others while they bear it; otherwise it runs on
machines that stay. Changes happen only between attempts, which continue from a checkpoint.
"""

from collections.abc import Sequence
from typing import Final

from schemas.units import HOUR_MS, Ms

# A stop costs half of the time between two checkpoints on average, and this much to start again.
RESTART_MS: Final[Ms] = 180_000
# Stops may cost at most 1/LOST_SHARE of the time that spot machines live.
LOST_SHARE: Final = 10
# Assumed lifetime of a spot machine without history; measured means are 0.7 to 10 hours.
PRIOR_MS: Final[Ms] = 2 * HOUR_MS
SCARCITY_WINDOW_MS: Final[Ms] = 24 * HOUR_MS  # losses of all spot machines count for so long
# So many losses of one job in that time, and it is kept off spot machines until that long after.
LOSSES_MAX: Final = 2
LOSSES_WINDOW_MS: Final[Ms] = 2 * HOUR_MS
KEPT_OFF_MS: Final[Ms] = 4 * HOUR_MS
LOSSES_KEPT: Final = 64  # the newest of a pool


def lifetime_ms(nodes: int, losses: Sequence[Ms], at: Ms) -> Ms:
    """Expected lifetime of a spot machine, from their number and their losses of the last day."""
    recent = sum(loss > at - SCARCITY_WINDOW_MS for loss in losses)
    return PRIOR_MS if not recent else min(PRIOR_MS, nodes * SCARCITY_WINDOW_MS // recent)


def bears_spot(saved_every_ms: Ms, lives_ms: Ms) -> bool:
    """Return whether spot machines suit work: an average loss is a small share of their life."""
    return LOST_SHARE * (saved_every_ms // 2 + RESTART_MS) <= lives_ms


def kept_off_until(losses: Sequence[Ms], at: Ms) -> Ms | None:
    """Until when a job is kept off spot machines, because it has lost several recently.

    losses: when it lost them, oldest first. None: it does not.
    """
    if len(losses) < LOSSES_MAX:
        return None
    newest, before = losses[-1], losses[-LOSSES_MAX]
    until = newest + KEPT_OFF_MS
    return until if newest - before <= LOSSES_WINDOW_MS and at < until else None


def spot_until(finish_by: Ms | None, p90_ms: Ms, saved_every_ms: Ms) -> Ms | None:
    """Until when work may start on a spot machine, lose it, and be done in time on another one."""
    return None if finish_by is None else finish_by - p90_ms - saved_every_ms - RESTART_MS
