"""Serving pools and their terms in the state of a tenant: what events change."""

from typing import Final, assert_never

from msgspec.structs import replace

from schemas.pool import AttemptEnd
from schemas.records import build_from
from schemas.serving import (
    ServingEvent,
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
)
from schemas.units import Ms
from services.scheduler.domain.job.state import OpenTerm, ServingPool, TenantJobs
from services.scheduler.domain.pool.faults import EXCLUDED_MS, is_node_fault

SERVED_MS_MIN: Final[Ms] = 60_000  # a term that served so long was of use
EXCLUDED_MAX: Final = 16  # nodes that a serving pool keeps away from, the newest


def evolve_serving(tenant: TenantJobs, event: ServingEvent, at: Ms) -> TenantJobs:
    """Apply an event of a serving pool to its tenant."""
    match event:
        case ServingPoolSet():
            return _set(tenant, event)
        case ServingPoolRemoved(serving_pool_id=name):
            if name not in tenant.serving_pools:
                return tenant
            return replace(tenant, serving_pools=tenant.serving_pools.delete(name))
        case ServingPoolStalled():
            return _with_pool(tenant, event.serving_pool_id, stalled_by=event.code)
        case ServingTermBegun():
            return _begin(tenant, event)
        case ServingTermDraining():
            return _with_term(tenant, event.term_id, is_ending=True)
        case ServingTermUnwanted():
            return _with_term(tenant, event.term_id, is_ending=True, asked=True)
        case ServingTermEnded():
            return _end(tenant, event, at)
        case _:
            assert_never(event)


def _set(tenant: TenantJobs, event: ServingPoolSet) -> TenantJobs:
    pool = ServingPool(terms=event.terms)
    pools = tenant.serving_pools.set(event.terms.serving_pool_id, pool)
    return replace(tenant, serving_pools=pools)


def _begin(tenant: TenantJobs, event: ServingTermBegun) -> TenantJobs:
    term = build_from(OpenTerm, event, term_id=event.placement.job_id)
    tenant = replace(
        tenant,
        serving_terms=tenant.serving_terms.set(term.term_id, term),
        terms_begun=tenant.terms_begun + 1,
    )
    return _with_pool(tenant, event.serving_pool_id, stalled_by=None)


def _end(tenant: TenantJobs, event: ServingTermEnded, at: Ms) -> TenantJobs:
    if event.term_id in tenant.serving_terms:
        terms = tenant.serving_terms.delete(event.term_id)
        tenant = replace(tenant, serving_terms=terms)
    pool = tenant.serving_pools.get(event.serving_pool_id)
    if pool is None:
        return tenant
    counted = _count_end(pool, event.end, at)
    return replace(tenant, serving_pools=tenant.serving_pools.set(event.serving_pool_id, counted))


def _count_end(pool: ServingPool, end: AttemptEnd, at: Ms) -> ServingPool:
    """A term that was served until its cap begins all counts anew."""
    if end.outcome != "failed":
        served = end.used_gpu_ms >= SERVED_MS_MIN * pool.terms.replica.slots
        by_tenant = end.ended_by == "tenant"
        return replace(pool, fruitless=0 if served else pool.fruitless + (not by_tenant))
    if end.cause == "budget":
        return replace(pool, failures=0, fruitless=0)
    failed = replace(pool, failures=pool.failures + 1)
    if not is_node_fault(end.outcome, end.cause, has_checkpoint=False):
        return failed
    before = excluded_at(pool, at)
    nodes = (*before, *(name for name in end.nodes_at_fault if name not in before))
    return replace(failed, excluded_nodes=nodes[-EXCLUDED_MAX:], excluded_until=at + EXCLUDED_MS)


def excluded_at(pool: ServingPool, at: Ms) -> tuple[str, ...]:
    """Nodes that the serving pool keeps away from at this moment."""
    return pool.excluded_nodes if at < pool.excluded_until else ()


def _with_pool(tenant: TenantJobs, name: str, **changes: object) -> TenantJobs:
    pool = tenant.serving_pools.get(name)
    if pool is None:
        return tenant
    return replace(tenant, serving_pools=tenant.serving_pools.set(name, replace(pool, **changes)))


def _with_term(tenant: TenantJobs, name: str, **changes: object) -> TenantJobs:
    term = tenant.serving_terms.get(name)
    if term is None:
        return tenant
    return replace(tenant, serving_terms=tenant.serving_terms.set(name, replace(term, **changes)))
