"""A trace in which whole nodes are in demand, which a planner that favours short jobs starves.

Of the public traces 4 % of the jobs need whole nodes. Here a sixth do, and have most of the GPU
time, beside jobs of one slot that run for days and keep every node in use.
"""

from math import log
from random import Random
from typing import Final

from schemas.units import HOUR_MS
from tunery.cli.simulate.trace_jobs import TraceJob

SIZES: Final = {1: 70, 2: 7, 4: 7, 8: 12, 16: 3, 32: 1}  # slots → share of the jobs
LANE_SHARES: Final = (10, 40, 50)
TENANTS: Final = 12
MEDIAN_H, SPREAD, LONGEST_H = 0.4, 1.8, 60.0
BURST_SHARE, BURST_JOBS = 0.04, 30  # how many submissions are bursts of one tenant, and how large
ESTIMATE_SHIFT, ESTIMATE_SPREAD = 0.5, 0.8  # estimates are 1.65 times too long at the median


def whole_node_trace(seed: int, slots: int, hours: int, load: float) -> list[TraceJob]:
    """Return jobs that are submitted within so many hours and need that share of the slots.

    slots: slots of the whole pool. Equal seeds give equal jobs.
    """
    random = Random(seed)  # noqa: S311  # the same jobs each time
    wanted_ms = int(slots * hours * HOUR_MS * load)
    drawn: list[tuple[int, int, int, int, int]] = []
    needed_ms = 0
    while needed_ms < wanted_ms:
        is_burst = random.random() < BURST_SHARE
        at = random.randrange(hours * HOUR_MS)
        tenant = min(int(random.paretovariate(1.0)), TENANTS)
        for _ in range(random.randint(2, BURST_JOBS) if is_burst else 1):
            hours_long = min(LONGEST_H, random.lognormvariate(log(MEDIAN_H), SPREAD))
            duration_ms = max(10_000, int(hours_long * HOUR_MS))
            size = random.choices([*SIZES], [*SIZES.values()])[0]
            lane = random.choices(range(len(LANE_SHARES)), LANE_SHARES)[0]
            drawn.append((at, duration_ms, size, lane, tenant))
            needed_ms += duration_ms * size
    return [
        TraceJob(
            job_id=f"{number:08d}",
            submitted_at=at,
            duration_ms=duration_ms,
            estimate_ms=max(
                1, int(duration_ms * random.lognormvariate(ESTIMATE_SHIFT, ESTIMATE_SPREAD))
            ),
            slots=size,
            tenant=f"t{tenant:02d}",
            lane=lane,
        )
        for number, (at, duration_ms, size, lane, tenant) in enumerate(sorted(drawn))
    ]
