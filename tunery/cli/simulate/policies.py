"""Ways to serve the queue, by the names that the literature has for them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from schemas.units import HOUR_MS
from tunery.plan.scheduling.policy import PRODUCT, Policy

UNLIMITED: Final = 1_000_000_000
# One queue of all lanes and tenants, in order of submission, without preemption.
_ONE_QUEUE: Final = replace(
    PRODUCT,
    lanes=False,
    fair=False,
    premium_capped=False,
    patience=0,
    preempting=0,
    kept_max=0,
    backfill_max=UNLIMITED,
    starts_max=UNLIMITED,
)
POLICIES: Final[Mapping[str, Policy]] = {
    "fifo": replace(_ONE_QUEUE, skipping=False, reserving=False),
    "skip-ahead": replace(_ONE_QUEUE, reserving=False),
    "easy": replace(_ONE_QUEUE, shortest_backfill=False),
    "easy-sjf": _ONE_QUEUE,
    "sjf": replace(_ONE_QUEUE, reserving=False, patience=UNLIMITED),
    "tunery": PRODUCT,
    "fair-hours": replace(PRODUCT, share_half_life_ms=168 * HOUR_MS),
}
