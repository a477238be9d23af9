"""An independent account of serving pools: none waits where it could have a replica more."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from schemas import errors
from schemas.envelope import Rejected
from schemas.erasure import JobsClosed
from schemas.serving import (
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
)
from schemas.units import Ms
from simulator.control_plane.quota_books import Quota, TenantBook

FAILURES_MIN: Final = 5  # terms that ended, before a pool may be given up


@dataclass
class ServingBook:
    """A serving pool of a tenant.

    staying: open terms that nothing ends.
    ended: terms that did, since it was set; gives_up: it says that too many of them failed.
    """

    terms: ServingPoolTerms
    staying: set[str] = field(default_factory=set)
    ended: int = 0
    gives_up: bool = False


@dataclass
class ServingBooks:
    """Entered after the same decision is in `quota`; `violations` is what did not hold."""

    quota: Quota
    violations: list[str] = field(default_factory=list)
    _pools: dict[str, dict[str, ServingBook]] = field(default_factory=lambda: defaultdict(dict))
    _closed: set[str] = field(default_factory=set)

    def enter(self, tenant: str, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `job`."""
        pools = self._pools[tenant]
        for event in events:
            if isinstance(event, JobsClosed):
                self._closed.add(tenant)
            self._enter(pools, event)
        if tenant in self._closed or any(isinstance(event, Rejected) for event in events):
            return
        for name, pool in pools.items():
            if self._could_rise(pool, self.quota.tenants[tenant], at):
                self.violations.append(f"stuck: {name} waits at {at}, with room for a replica")

    def _enter(self, pools: dict[str, ServingBook], event: Any) -> None:
        match event:
            case ServingPoolSet():
                name = event.terms.serving_pool_id
                staying = pools[name].staying if name in pools else set[str]()
                pools[name] = ServingBook(event.terms, staying)
            case ServingPoolRemoved():
                del pools[event.serving_pool_id]
            case ServingPoolStalled():
                pool = pools[event.serving_pool_id]
                pool.gives_up = event.code == errors.ATTEMPTS_EXHAUSTED
                if pool.gives_up and pool.ended < FAILURES_MIN:
                    self.violations.append(f"stuck: {event} after {pool.ended} terms")
            case ServingTermBegun():
                pools[event.serving_pool_id].staying.add(event.placement.job_id)
            case ServingTermDraining() | ServingTermUnwanted() | ServingTermEnded():
                for pool in pools.values():
                    pool.staying.discard(event.term_id)
                if isinstance(event, ServingTermEnded) and event.serving_pool_id in pools:
                    pools[event.serving_pool_id].ended += 1
            case _:
                pass

    def _could_rise(self, pool: ServingBook, book: TenantBook, at: Ms) -> bool:
        """True if a replica is missing and no limit known to this book prevents its start."""
        terms, plan = pool.terms, book.terms
        if len(pool.staying) >= terms.replicas or pool.gives_up or book.suspended or plan is None:
            return False
        if terms.cap is not None or book.budget is not None:
            return False
        asked = (terms.price.version, terms.price.lane or plan.lane)
        if plan.price is None and asked != (plan.price_version, plan.lane):
            return False
        hold = terms.replica.slots * terms.replica.term_ms
        return book.window(at) + hold <= plan.limits.hard_gpu_ms
