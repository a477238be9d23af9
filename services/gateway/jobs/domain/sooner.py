"""Changes that may start a waiting job sooner: of its submission, or of its tenant's plan."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from schemas.account import Lane
from schemas.units import HOUR_MS, Ms
from services.gateway.jobs.domain.plan_responses import RefusalResponse
from services.gateway.jobs.domain.responses import QueueResponse
from services.gateway.web.domain.responses import Response
from tunery.plan.scheduling.requests import LANES

Change = Literal["none", "slots", "epochs", "accelerator", "domain", "spot", "later", "lane"]
LATER_MS: Final[Ms] = 8 * HOUR_MS  # tonight, seen from a working day in any zone
#: settings that keep a job from nodes which it could have otherwise
BOUNDS: Final[dict[Change, str]] = {
    "accelerator": "On any model of device",
    "domain": "In any domain",
}


class ChangedStartResponse(Response):
    """A change, and when the job would start with it. `body`: the submission that makes it, with
    `later` in eight hours; null: none does. `queue`: null: not known. `refusals`: why it would be
    refused, and how much more of a budget would admit it.
    """

    change: Change
    text: str
    body: dict[str, Any] | None
    queue: QueueResponse | None
    refusals: list[RefusalResponse]
    currency: str | None = None
    amount_micro: int | None = None
    amount_max_micro: int | None = None


class StartsResponse(Response):
    """What would start a job sooner, as the scheduler's planner answers. The first row is the job
    as it is; each other one is a plan for a job in its place, submitted at `at`, or later.
    """

    object: Literal["fine_tuning.job.starts"] = "fine_tuning.job.starts"
    job_id: str
    at: int
    data: list[ChangedStartResponse]


def changed_bodies(body: dict[str, Any]) -> Iterator[tuple[Change, str, dict[str, Any]]]:
    """Yield submissions that differ from one in one thing, each with its change in words."""
    training, placement = body.get("training", {}), body.get("placement", {})

    def changed(group: str, **values: Any) -> dict[str, Any]:
        return {**body, group: {**body.get(group, {}), **values}}

    slots = training.get("slots", 1)
    for fewer in sorted({slots // 2, 1} - {0, slots}, reverse=True):
        yield "slots", f"With {fewer} of {slots} slots", changed("training", slots=fewer)
    epochs = training.get("n_epochs", 1)
    if isinstance(epochs, int) and epochs > 1:  # a shorter job may fit before a reservation
        half = epochs // 2
        yield "epochs", f"With {half} of {epochs} epochs", changed("training", n_epochs=half)
    for name, text in BOUNDS.items():
        if placement.get(name) is not None:
            # a time to wait for a domain means nothing without one
            wait = {"domain_wait_minutes": None} if name == "domain" else {}
            yield name, text, changed("placement", **{name: None}, **wait)
    if placement.get("spot") is not True:
        yield "spot", "On spot machines too", changed("placement", spot=True)


def higher_lanes(lane: Lane) -> tuple[Lane, ...]:
    """Return the lanes that are served before one, the next one first."""
    return LANES[: LANES.index(lane)][::-1]
