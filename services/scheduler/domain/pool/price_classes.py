"""Spot nodes of a pool: which placements may have them, and what jobs lost on them."""

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.node import SpotGivenUp, SpotReconsidered
from schemas.pool import Placement, PlacementClosed, PlacementQueued
from schemas.training import TrainWork
from schemas.units import Ms
from services.scheduler.domain.pool.experience import expected_time
from services.scheduler.domain.pool.state import Lease, Pool
from tunery.plan.spot import (
    LOSSES_KEPT,
    LOSSES_MAX,
    bears_spot,
    kept_off_until,
    lifetime_ms,
    spot_until,
)


def may_have_spot(pool: Pool, placement: Placement, at: Ms) -> bool | None:
    """Return the spot setting of a placement's constraints.

    Return False instead of True while spot nodes would cost the job too much money or time.
    """
    asked = placement.constraints
    if asked is None or not asked.spot:
        return None if asked is None else asked.spot
    nodes = sum(node.description.spot for node in pool.nodes.values())
    lives_ms = lifetime_ms(nodes, pool.spot_lost, at)
    until = spot_until_of(pool, placement)
    return (
        bears_spot(_saved_every_ms(pool, placement), lives_ms)
        and kept_off_until(pool.spot_losses.get(placement.job_id, ()), at) is None
        and (until is None or at < until)
    )


def spot_until_of(pool: Pool, placement: Placement) -> Ms | None:
    """When it needs another node to be done in time; None: never."""
    asked = placement.constraints
    if asked is None or not asked.spot:
        return None
    expected = expected_time(pool, placement)
    p90_ms = placement.p90_ms if expected is None else expected.p90_ms
    return spot_until(asked.finish_by, p90_ms, _saved_every_ms(pool, placement))


def spot_from_of(pool: Pool, placement: Placement, at: Ms) -> Ms | None:
    """Until when its losses keep a placement off spot nodes that it allows; None: they do not."""
    asked = placement.constraints
    if asked is None or not asked.spot:
        return None
    return kept_off_until(pool.spot_losses.get(placement.job_id, ()), at)


def change_spot(pool: Pool, at: Ms) -> tuple[SpotGivenUp | SpotReconsidered, ...]:
    """Placements that would not be done in time on spot nodes any more, or may have them again."""
    given_up = sorted((until, job_id) for job_id, until in pool.spot_until.items() if until <= at)
    over = sorted((until, job_id) for job_id, until in pool.spot_from.items() if until <= at)
    return (
        *(SpotGivenUp(job_id=job_id) for _, job_id in given_up),
        *(_reconsider(pool, pool.waiting[job_id].placement, at) for _, job_id in over),
    )


def _reconsider(pool: Pool, placement: Placement, at: Ms) -> SpotReconsidered:
    return SpotReconsidered(
        job_id=placement.job_id,
        spot=may_have_spot(pool, placement, at) is True,
        spot_until=spot_until_of(pool, placement),
    )


def next_spot_change(pool: Pool, job_id: str) -> Ms | None:
    """When the placement of a job gives up spot nodes, or may have them again."""
    ends = (pool.spot_until.get(job_id), pool.spot_from.get(job_id))
    return min((end for end in ends if end is not None), default=None)


def with_spot_deadlines(pool: Pool, event: PlacementQueued) -> Pool:
    """The pool that knows when a placement changes its price class while it waits."""
    job_id = event.placement.job_id
    if event.spot and event.spot_until is not None:
        pool = replace(pool, spot_until=pool.spot_until.set(job_id, event.spot_until))
    if event.spot_from is not None:
        pool = replace(pool, spot_from=pool.spot_from.set(job_id, event.spot_from))
    return pool


def without_spot_deadlines(pool: Pool, job_id: str) -> Pool:
    """The pool in which a placement does not wait any more."""
    if job_id in pool.spot_until:
        pool = replace(pool, spot_until=pool.spot_until.delete(job_id))
    if job_id in pool.spot_from:
        pool = replace(pool, spot_from=pool.spot_from.delete(job_id))
    return pool


def with_spot_given_up(pool: Pool, event: SpotGivenUp) -> Pool:
    """The pool in which a placement waits for nodes that stay."""
    waiting = replace(pool.waiting[event.job_id], spot=False)
    return replace(
        pool,
        waiting=pool.waiting.set(event.job_id, waiting),
        spot_until=pool.spot_until.delete(event.job_id),
    )


def with_spot_reconsidered(pool: Pool, event: SpotReconsidered) -> Pool:
    """The pool in which a placement is not kept off spot nodes by its losses any more."""
    waiting = replace(pool.waiting[event.job_id], spot=event.spot)
    if event.spot and event.spot_until is not None:
        pool = replace(pool, spot_until=pool.spot_until.set(event.job_id, event.spot_until))
    return replace(
        pool,
        waiting=pool.waiting.set(event.job_id, waiting),
        spot_from=pool.spot_from.delete(event.job_id),
    )


def with_spot_end(pool: Pool, lease: Lease, event: PlacementClosed, ctx: Context) -> Pool:
    """The pool after an attempt: a job that lost a spot node may have to be kept off them."""
    hardware, end = lease.ref.hardware, event.end
    was_lost = end.outcome in ("lost", "preempted") and end.ended_by == "node"
    if hardware is None or not hardware.spot or not was_lost:
        return pool
    losses = (*pool.spot_losses.get(event.job_id, ()), ctx.at)[-LOSSES_MAX:]
    return replace(pool, spot_losses=pool.spot_losses.set(event.job_id, losses))


def with_spot_lost(pool: Pool, node_id: str, at: Ms) -> Pool:
    """The pool after a spot node was noticed or lost: the more of them, the shorter they live."""
    node = pool.nodes.get(node_id)
    if node is None or not node.description.spot or node.ends_at is not None:
        return pool
    return replace(pool, spot_lost=(*pool.spot_lost, at)[-LOSSES_KEPT:])


def _saved_every_ms(pool: Pool, placement: Placement) -> Ms:
    """The time between two checkpoints at most; an evaluation has none."""
    works = pool.works.get(placement.job_id, ())
    work = next((known.work for known in works if known.work_id == placement.work_id), None)
    return work.hyper.checkpoint_every_ms if isinstance(work, TrainWork) else placement.p50_ms
