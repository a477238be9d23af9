"""The learning rate of every optimizer step, as a share of the highest. Never imports torch."""

import math
from typing import Final, assert_never

from tunery.work.spec import Scheduler

WSD_DECAY: Final = 0.1  # of all steps (MiniCPM, arXiv 2404.06395)


def rate_factor(scheduler: Scheduler, step: int, *, warmup: int, total: int) -> float:
    """Share of the highest rate for the step after `step` steps are done, above 0 up to 1.

    `warmup` steps climb in equal parts, so that none is spent at a rate of zero; then the schedule
    runs down over the rest of the `total` steps and would be at 0 in the step after the last.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, total - warmup)
    match scheduler:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - done)
        case "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * done)))
        case "wsd":
            return min(1.0, (total - step) / max(1, round(WSD_DECAY * total)))
        case _:
            assert_never(scheduler)
