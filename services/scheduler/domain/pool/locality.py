"""Placements that want nodes of one fabric domain, and for how long they wait for them."""

from msgspec.structs import replace

from schemas.node import DomainGivenUp
from schemas.pool import Placement, PlacementQueued
from schemas.units import Ms
from services.scheduler.domain.pool.state import Pool


def domain_until_of(placement: Placement, at: Ms) -> Ms | None:
    """When a placement that begins to wait takes nodes of any domain; None: never."""
    asked = placement.constraints
    if asked is None or not asked.domain or asked.domain_wait_ms is None:
        return None
    return at + asked.domain_wait_ms


def give_up_domains(pool: Pool, at: Ms) -> tuple[DomainGivenUp, ...]:
    """Placements that have waited long enough for nodes of their domain."""
    due = sorted((until, job_id) for job_id, until in pool.domain_until.items() if until <= at)
    return tuple(DomainGivenUp(job_id=job_id) for _, job_id in due)


def with_domain_deadline(pool: Pool, event: PlacementQueued) -> Pool:
    """Remember until when a placement waits for its domain."""
    if event.domain_until is None:
        return pool
    until = pool.domain_until.set(event.placement.job_id, event.domain_until)
    return replace(pool, domain_until=until)


def without_domain_deadline(pool: Pool, job_id: str) -> Pool:
    """Forget that a placement waits for its domain."""
    if job_id not in pool.domain_until:
        return pool
    return replace(pool, domain_until=pool.domain_until.delete(job_id))


def with_domain_given_up(pool: Pool, event: DomainGivenUp) -> Pool:
    """Let a placement take nodes of any domain."""
    waiting = replace(pool.waiting[event.job_id], any_domain=True)
    pool = without_domain_deadline(pool, event.job_id)
    return replace(pool, waiting=pool.waiting.set(event.job_id, waiting))
