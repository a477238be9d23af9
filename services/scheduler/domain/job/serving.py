"""Serving pools: as many terms as replicas are wanted, and the next one where a term ends.

A term ends by its cap, which `pool` watches, and its drain notice is what the next term begins
with. All pools of a tenant are looked through after each of its commands, so one that is stalled
has its terms as soon as there is room; `TenantJobs.review_at` is the time of that when no command
announces it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from schemas import errors
from schemas.admission import TENANT_BUDGET
from schemas.billing import Lane, Price
from schemas.envelope import Context, Reason, Rejected, reject
from schemas.job import Event, RecordClosed, RecordDraining
from schemas.pool import EndRequest, Placement
from schemas.reasons import ending, failing, refusing
from schemas.records import build_from
from schemas.serving import (
    RemoveServingPool,
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
    SetServingPool,
)
from schemas.submission import Estimate
from schemas.training import ServeWork, WorkDescription, work_id_of
from schemas.units import DAY_MS, Ms
from services.scheduler.domain.job.admission import over_cap
from services.scheduler.domain.job.budgets import over_month
from services.scheduler.domain.job.evolve import evolve_tenant
from services.scheduler.domain.job.quota import month_standing, term_rest_gpu_ms, terms_at
from services.scheduler.domain.job.serving_state import excluded_at
from services.scheduler.domain.job.state import OpenTerm, ServingPool, TenantJobs
from tunery.plan.limits import over_hard_limit
from tunery.plan.price import dearest_micro, price_micro
from tunery.plan.time import start_ms_max

SERVING_POOLS_MAX: Final = 16  # of a tenant
# Replicas in all serving pools of a tenant: one command may begin a term of each, and a term may
# name a hundred rates, which is 15 kB.
REPLICAS_MAX: Final = 32
# The notice before a cap goes out two minutes before it, or at half of a shorter term.
TERM_MS_MIN: Final[Ms] = 60_000
TERM_MS_MAX: Final[Ms] = DAY_MS  # its slices and credits fit into one record
FAILURES_MAX: Final = 5  # terms in a row that failed; then somebody has to look at it
FRUITLESS_MAX: Final = 20  # terms in a row that were lost or preempted at once; as for jobs


def set_serving_pool(
    tenant: TenantJobs, command: SetServingPool, ctx: Context
) -> tuple[Event, ...]:
    """Set a serving pool, or reject it, also if the hold of a term is refused."""
    terms, plan = command.terms, terms_at(tenant, ctx.at)
    if plan is None:
        return reject(errors.NOT_FOUND, refusing("limits_missing"))
    if tenant.suspended:
        return reject(errors.SUSPENDED, refusing("tenant_suspended"))
    if terms.price.version != plan.price_version:
        return reject(errors.ILLEGAL_STATE, refusing("prices_changed"))
    if (lane := terms.price.lane) is not None and lane != plan.lane:
        changed = refusing("plan_changed", lane=lane, plan=plan.lane)
        return reject(errors.ILLEGAL_STATE, changed)
    if (wrong := _malformed(tenant, terms)) is not None:
        return (wrong,)
    set_to = ServingPoolSet(terms=terms, lane=plan.lane)
    followed = follow_serving(tenant, (set_to,), ctx)
    for event in followed:
        if isinstance(event, ServingPoolStalled) and event.serving_pool_id == terms.serving_pool_id:
            return reject(event.code, event.reason)
    return (set_to,)


def remove_serving_pool(tenant: TenantJobs, command: RemoveServingPool) -> tuple[Event, ...]:
    """Remove a serving pool, and end its terms."""
    name = command.serving_pool_id
    if name not in tenant.serving_pools:
        missing = refusing("serving_pool_missing", serving_pool_id=name)
        return reject(errors.NOT_FOUND, missing, "id")
    ends = (_unwanted(term) for term in _terms_of(tenant, name) if not term.asked)
    return (ServingPoolRemoved(serving_pool_id=name), *ends)


def decide_term_fact(term: OpenTerm, command: object) -> tuple[Event, ...]:
    """Return the events of a term that follow from a fact of `pool`; most facts have none."""
    match command:
        case RecordDraining() if not term.is_ending:
            return (ServingTermDraining(term_id=term.term_id),)
        case RecordClosed():
            ended = build_from(
                ServingTermEnded, term, end=command.end, released_gpu_ms=term_rest_gpu_ms(term)
            )
            return (ended,)
        case _:
            return ()


def follow_serving(tenant: TenantJobs, events: Sequence[Event], ctx: Context) -> tuple[Event, ...]:
    """Terms that begin or end because of these events, which the tenant does not have yet."""
    for event in events:
        tenant = evolve_tenant(tenant, event, ctx)
    follow_ups: list[Event] = []
    for name in sorted(tenant.serving_pools):
        for event in _follow_pool(tenant, tenant.serving_pools[name], ctx):
            follow_ups.append(event)
            tenant = evolve_tenant(tenant, event, ctx)
    return tuple(follow_ups)


def _follow_pool(tenant: TenantJobs, pool: ServingPool, ctx: Context) -> tuple[Event, ...]:
    """Terms for replicas that are missing; the newest ones end where there are too many."""
    name = pool.terms.serving_pool_id
    staying = [term for term in _terms_of(tenant, name) if not term.is_ending]
    surplus = len(staying) - pool.terms.replicas
    if surplus > 0:
        return tuple(_unwanted(term) for term in reversed(staying[-surplus:]))
    events: list[Event] = []
    for _ in range(-surplus):
        event = _next_term(tenant, tenant.serving_pools[name], ctx)
        if isinstance(event, ServingPoolStalled):
            known = tenant.serving_pools[name].stalled_by == event.code
            return (*events, *(() if known else (event,)))
        events.append(event)
        tenant = evolve_tenant(tenant, event, ctx)
    return tuple(events)


def _next_term(
    tenant: TenantJobs, pool: ServingPool, ctx: Context
) -> ServingTermBegun | ServingPoolStalled:
    """The next term of a serving pool, or why there is none."""
    terms, replica = pool.terms, pool.terms.replica
    name = terms.serving_pool_id
    admitted = _admit(tenant, pool, ctx.at)
    if isinstance(admitted, Rejected):
        return ServingPoolStalled(serving_pool_id=name, code=admitted.code, reason=admitted.reason)
    needs = admitted.needs
    work = ServeWork(
        serving_pool_id=name,
        base_id=replica.base.base_id,
        base_sha256=replica.base.sha256,
        base_path=replica.base.path,
    )
    term_id = f"{name}-{tenant.terms_begun + 1}"
    described = WorkDescription(job_id=term_id, work_id=work_id_of(work), work=work)
    return ServingTermBegun(
        serving_pool_id=name,
        pool=replica.pool,
        description=described,
        placement=_placement(ctx, pool, described, admitted),
        hold_gpu_ms=needs.hold_gpu_ms,
        price=admitted.price,
        price_max_micro=needs.price_max_micro,
        key_id=terms.key_id,
    )


class Admission(NamedTuple):
    """Terms on which a replica's term is admitted."""

    # lane, price: lane and price of the tenant's plan at this moment
    lane: Lane
    price: Price
    needs: Estimate  # usage and cost that it may reach


def _admit(tenant: TenantJobs, pool: ServingPool, at: Ms) -> Admission | Rejected:
    """Admit a term by the plan, the use and the budgets of this moment."""
    terms, plan = pool.terms, terms_at(tenant, at)
    if (exhausted := _exhausted(pool)) is not None:
        return Rejected(code=errors.ATTEMPTS_EXHAUSTED, reason=exhausted)
    if plan is None:
        return Rejected(code=errors.NOT_FOUND, reason=refusing("limits_missing"))
    if tenant.suspended:
        return Rejected(code=errors.SUSPENDED, reason=refusing("tenant_suspended"))
    price = plan.price
    if price is None:  # its book was not on the log when the plan was set
        price = terms.price
        if (price.version, price.lane or plan.lane) != (plan.price_version, plan.lane):
            return Rejected(code=errors.ILLEGAL_STATE, reason=refusing("prices_changed"))
    needs = needs_of(terms, price)
    use = month_standing(tenant, TENANT_BUDGET, needs.currency, at)
    refusal = over_hard_limit(plan.limits, use.used_gpu_ms + use.held_gpu_ms, needs)
    if refusal is None and terms.cap is not None:
        refusal = over_cap(tenant, terms.cap, needs, at)
    return (
        refusal or over_month(tenant, terms.key_id, needs, at) or Admission(plan.lane, price, needs)
    )


def _exhausted(pool: ServingPool) -> Reason | None:
    """Return why no term begins until the pool is set again; None: terms may begin."""
    if pool.failures >= FAILURES_MAX:
        return failing("attempts_failed", attempts=FAILURES_MAX)
    if pool.fruitless >= FRUITLESS_MAX:
        return failing("attempts_lost", attempts=FRUITLESS_MAX)
    return None


def needs_of(terms: ServingPoolTerms, price: Price) -> Estimate:
    """Return the largest usage and cost of a term: all of its time at the highest price of its
    device.
    """
    replica = terms.replica
    hold_gpu_ms = replica.slots * replica.term_ms
    most = price_micro(price, hold_gpu_ms * dearest_micro(price, replica.device), 0)
    return Estimate(
        tokens=0,
        steps=0,
        train_gpu_ms=0,
        eval_gpu_ms=0,
        hold_gpu_ms=hold_gpu_ms,
        memory_bytes=replica.memory_bytes,
        price_micro=most,
        price_max_micro=most,
        currency=price.currency,
    )


def _placement(
    ctx: Context, pool: ServingPool, described: WorkDescription, admitted: Admission
) -> Placement:
    replica = pool.terms.replica
    return build_from(
        Placement,
        described,
        replica,
        tenant=ctx.key,
        attempt=1,
        role="serve",
        lane=admitted.lane,
        max_gpu_ms=admitted.needs.hold_gpu_ms,
        price_version=admitted.price.version,
        checkpoints=(),
        excluded_nodes=excluded_at(pool, ctx.at),
        first_submitted_at=ctx.at,
        p50_ms=replica.term_ms,
        p90_ms=replica.term_ms,
        start_ms_max=start_ms_max(replica.base),
    )


def _malformed(tenant: TenantJobs, terms: ServingPoolTerms) -> Rejected | None:
    """Return the rejection of impossible terms; None: they are possible."""
    name, replica = terms.serving_pool_id, terms.replica
    known = tenant.serving_pools.get(name)
    if known is None and len(tenant.serving_pools) >= SERVING_POOLS_MAX:
        full = refusing("serving_pools_at_most", limit=SERVING_POOLS_MAX)
        return Rejected(code=errors.CONCURRENCY_LIMIT, reason=full)
    if known is not None and known.terms.replica != replica:
        fixed = refusing("serving_pool_fixed", serving_pool_id=name)
        return Rejected(code=errors.ILLEGAL_STATE, reason=fixed)
    pools = (pool.terms for pool in tenant.serving_pools.values())
    elsewhere = sum(pool.replicas for pool in pools if pool.serving_pool_id != name)
    if terms.replicas < 0 or elsewhere + terms.replicas > REPLICAS_MAX:
        wrong = refusing("replicas_out_of_range", limit=REPLICAS_MAX)
        return Rejected(code=errors.MALFORMED, reason=wrong, param="replicas")
    if replica.slots < 1:
        return Rejected(code=errors.MALFORMED, reason=refusing("slots_below_one"), param="slots")
    if not TERM_MS_MIN <= replica.term_ms <= TERM_MS_MAX:
        wrong = refusing("term_out_of_range", least_ms=TERM_MS_MIN, most_ms=TERM_MS_MAX)
        return Rejected(code=errors.MALFORMED, reason=wrong, param="term_ms")
    return None


def _terms_of(tenant: TenantJobs, name: str) -> list[OpenTerm]:
    """Open terms of a serving pool, oldest first."""
    terms = (term for term in tenant.serving_terms.values() if term.serving_pool_id == name)
    return sorted(terms, key=lambda term: int(term.term_id.rpartition("-")[2]))


def _unwanted(term: OpenTerm) -> ServingTermUnwanted:
    request = EndRequest(attempt=1, mode="drain", ended_by="tenant", reason=ending("cancelled"))
    return ServingTermUnwanted(term_id=term.term_id, pool=term.pool, request=request)
