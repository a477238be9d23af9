"""What would start a waiting job sooner: its own recipe, changed in one thing, as the API plans it.

`POST /v1/fine_tuning/jobs/plan` asks the planner that decides; nothing is computed here.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from services.gateway.console.calls import JOBS, CallRefused, Calls

Body: TypeAlias = dict[str, Any]
#: changes that keep a job from nodes which it could have otherwise
LIMITS: Final = {"accelerator": "On any model of device", "domain": "In any domain"}


def changes(body: Body) -> dict[str, Body]:
    """Return bodies of submissions that differ from one in one thing, by what differs."""
    training, placement = body.get("training", {}), body.get("placement", {})
    bodies: dict[str, Body] = {"As it is, submitted now": body}

    def add(name: str, group: str, **values: Any) -> None:
        bodies[name] = {**body, group: {**body.get(group, {}), **values}}

    slots = training.get("slots", 1)
    for fewer in sorted({slots // 2, 1} - {0, slots}, reverse=True):
        add(f"With {fewer} of {slots} slots", "training", slots=fewer)
    epochs = training.get("n_epochs", 1)
    if isinstance(epochs, int) and epochs > 1:  # a shorter job may fit before a reservation
        add(f"With {epochs // 2} of {epochs} epochs", "training", n_epochs=epochs // 2)
    for name, title in LIMITS.items():
        if placement.get(name) is not None:
            # a time to wait for a domain means nothing without one
            wait = {"domain_wait_minutes": None} if name == "domain" else {}
            add(title, "placement", **{name: None}, **wait)
    if placement.get("spot") is not True:
        add("On spot machines too", "placement", spot=True)
    return bodies


async def starts_of(api: Calls, path: str) -> dict[str, Mapping[str, Any]]:
    """Return the plans of a job's changes, by what differs. Raises CallRefused."""
    recipe = (await api.get(f"{path}/recipe"))["recipe"]
    bodies = changes({name: value for name, value in recipe.items() if name != "version"})
    plans = await asyncio.gather(*(_planned(api, body) for body in bodies.values()))
    return dict(zip(bodies, plans, strict=True))


async def _planned(api: Calls, body: Body) -> Mapping[str, Any]:
    """Return a plan, or the refusal of one in its place."""
    try:
        plan: Mapping[str, Any] = await api.post(f"{JOBS}/plan", body)
    except CallRefused as refusal:
        if refusal.status in (401, 403, 429):
            raise
        return {"refusals": [{"message": refusal.message}]}
    return plan
