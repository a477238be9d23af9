"""Errands that need a longer story: nodes that are forgotten, spot nodes, a month's turn."""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from schemas import errors
from schemas.node import CordonNode, ForgetNode, SpotGivenUp, SpotReconsidered, UncordonNode
from schemas.pool import LeaseGranted, PlacementQueued
from schemas.serving import (
    ReplicaTerms,
    ServingPoolStalled,
    ServingPoolTerms,
    ServingTermBegun,
    SetServingPool,
)
from schemas.training import NodeConstraints
from schemas.units import HOUR_MS, Ms
from simulator.control_plane.samples import BASE, POOL, SLOT_BYTES
from simulator.control_plane.tenants import TOKENS_PER_SLOT
from tunery.billing.periods import period_of
from tunery.plan.spot import KEPT_OFF_MS

if TYPE_CHECKING:
    from simulator.control_plane.errands import SimWorld

SPOT_JOB, OTHER_JOB = "ftjob-700", "ftjob-701"
TERM_MS: Final[Ms] = 60_000
RISE_S_MAX: Final = 300


async def forget_nodes(world: "SimWorld", rng: Random) -> None:
    """Machines leave in order and are forgotten, before they come back under the same name."""
    for _ in range(3):
        machine = rng.choice(world.machines)
        await machine.depart()
        await world.order(ForgetNode(node_id=machine.node_id))
        await world.wait(rng)


async def give_up_spot(world: "SimWorld", rng: Random) -> None:
    """In maintenance a job waits until it would not be done in time on a spot node."""
    tenant = rng.choice(world.tenants)
    await tenant.submit_as(OTHER_JOB, TOKENS_PER_SLOT, constraints=NodeConstraints(spot=False))
    await _cordon(world)
    asked = NodeConstraints(spot=True, finish_by=tenant.port.now_ms() + HOUR_MS)
    await tenant.submit_as(SPOT_JOB, TOKENS_PER_SLOT, constraints=asked)
    queued = await _until(world, PlacementQueued, _has_spot, 60, cordoned=True)
    if queued is not None:
        _sleep(world, queued.spot_until + 1_000 - world.context.broker.clock.true_ms())
        await _until(world, SpotGivenUp, _is_of_job, 60, cordoned=True)
    await _uncordon(world)


def _is_of_job(event: SpotGivenUp | SpotReconsidered) -> bool:
    return event.job_id == SPOT_JOB


def _has_spot(event: PlacementQueued) -> bool:
    return event.placement.job_id == SPOT_JOB and event.spot is True


async def lose_spot(world: "SimWorld", rng: Random) -> None:
    """A job loses two spot nodes, and waits in maintenance until that is long ago."""
    tenant = rng.choice(world.tenants)
    asked = NodeConstraints(spot=True)
    await tenant.submit_as(SPOT_JOB, TOKENS_PER_SLOT, constraints=asked)
    for lost in range(2):
        granted = await _until(world, LeaseGranted, partial(_is_after, lost), 60)
        if granted is None:
            return
        await asyncio.sleep(rng.uniform(2, 6))
        if lost == 1:
            await _cordon(world)
        (node_id,) = (member.node_id for member in granted.members)
        for machine in world.machines:
            if machine.node_id == node_id:
                await machine.lose_power()
    if await _until(world, PlacementQueued, _is_kept_off, 60, cordoned=True) is not None:
        _sleep(world, KEPT_OFF_MS + HOUR_MS)
        await _until(world, SpotReconsidered, _is_of_job, 60, cordoned=True)
    await _uncordon(world)


def _is_after(attempts: int, event: LeaseGranted) -> bool:
    return event.lease.job_id == SPOT_JOB and event.lease.attempt > attempts


def _is_kept_off(event: PlacementQueued) -> bool:
    return event.placement.job_id == SPOT_JOB and event.spot_from is not None


async def serve_across_months(world: "SimWorld", rng: Random) -> None:
    """The month's limit stops a serving pool, which rises when the next month begins."""
    context, tenant = world.context, rng.choice(world.tenants)
    await _wait_until(lambda: context.healed)
    if tenant.is_bounded or tenant.is_served or not await tenant.limit(10_000 * HOUR_MS):
        return
    name, at = f"sp_{tenant.name}", context.broker.clock.true_ms
    replica = ReplicaTerms(
        base=BASE, pool=POOL, slots=1, memory_bytes=SLOT_BYTES // 4, term_ms=TERM_MS
    )
    terms = ServingPoolTerms(serving_pool_id=name, replicas=1, replica=replica, price=tenant.price)
    if await tenant.ask("job", SetServingPool(terms=terms)) is not None:
        return
    await tenant.limit(TERM_MS)  # of which the first term uses some
    stalled = await _until(
        world, ServingPoolStalled, lambda event: _is_hard_limit(event, name), RISE_S_MAX
    )
    await _wait_until(lambda: not tenant.terms)
    if stalled is None or tenant.jobs:
        return
    begun = _begun(world, name)
    _sleep(world, period_of(at()).end_ms + 1_000 - at())
    for _ in range(RISE_S_MAX):
        await asyncio.sleep(1)
        if _begun(world, name) > begun:
            context.broker.tally.add("serving pool risen")
            return
    context.violations.append(f"stuck: {name} stays down in the new month")


def _is_hard_limit(event: ServingPoolStalled, name: str) -> bool:
    return event.serving_pool_id == name and event.code == errors.HARD_LIMIT


def _begun(world: "SimWorld", name: str) -> int:
    """How many terms a serving pool has had."""
    return sum(
        isinstance(event, ServingTermBegun) and event.serving_pool_id == name
        for decision in world.context.decisions["job"]
        for event in decision.events
    )


def _sleep(world: "SimWorld", asleep_ms: Ms) -> None:
    """Broker time runs on, and no monotonic clock does."""
    world.context.broker.trace(f"all sleep for {asleep_ms} ms")
    world.context.broker.clock.epoch_ms += max(0, asleep_ms)


async def _cordon(world: "SimWorld") -> None:
    """Cordon every node, including those added since; no effect on cordoned nodes."""
    for machine in [*world.machines]:
        await world.order(CordonNode(node_id=machine.node_id))


async def _uncordon(world: "SimWorld") -> None:
    for machine in [*world.machines]:
        await world.order(UncordonNode(node_id=machine.node_id))


async def _wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(RISE_S_MAX):
        if holds():
            return
        await asyncio.sleep(1)


async def _until(
    world: "SimWorld",
    kind: type[Any],
    fits: Callable[[Any], bool],
    seconds: int,
    *,
    cordoned: bool = False,
) -> Any:
    """The first event of a kind that fits, whenever it came; None: none did in so many seconds.

    cordoned: nodes that come meanwhile are cordoned, too.
    """
    for _ in range(seconds):
        for decisions in world.context.decisions.values():
            for decision in decisions:
                for event in decision.events:
                    if isinstance(event, kind) and fits(event):
                        return event
        if cordoned:
            await _cordon(world)
        await asyncio.sleep(1)
    return None
