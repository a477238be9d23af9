"""Rules of elastic nodes, one broken at a time."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.node import NodeResized
from schemas.pool import LeaseMember, LeaseWaits, ReportWait
from services.scheduler.domain.pool import (
    admission,
    deadlines,
    evolve,
    planned_pool,
    reports,
)
from services.scheduler.domain.pool.state import Lease, Pool, lease_key
from simulator.event_core.mutants import Mutant

_evolve_lease, _start_by = evolve._evolve_lease, deadlines._start_by
_decide_wait, _decide_report = admission.decide_wait, reports.decide_report


def _from_its_wait(lease: Lease, event: Any, ctx: Context) -> Lease:
    """Bill waiting leases."""
    evolved = _evolve_lease(lease, event, ctx)
    is_first = isinstance(event, LeaseWaits) and lease.started_at is None
    return replace(evolved, started_at=ctx.at, alive_at=ctx.at) if is_first else evolved


def _from_its_grant(lease: Lease) -> int:
    return _start_by(replace(lease, admitted_at=None))


def _again(pool: Pool, lease: Lease, command: ReportWait, ctx: Context) -> Any:
    """Let admitted leases wait again."""
    return _decide_wait(pool, replace(lease, admitted_at=None), command, ctx)


def _ended_or_not(pool: Pool, command: Any, ctx: Context, decide: Callable[..., Any]) -> Any:
    """Run leases that were given back."""
    key = lease_key(command.token.lease)
    lease = pool.leases.get(key)
    if lease is not None and lease.closed and lease.waits_since is not None:
        pool = replace(pool, leases=pool.leases.set(key, replace(lease, closed=False)))
    return _decide_report(pool, command, ctx, decide)


def _only_what_is_left(pool: Pool, member: LeaseMember) -> int:
    """Slots above a smaller quota count for nothing."""
    node = pool.nodes.get(member.node_id)
    return 0 if node is None else sum(number not in node.devices for number in member.devices)


def _as_before(pool: Pool, event: NodeResized) -> Pool:
    return pool


ELASTIC_MUTANTS: Final[Sequence[Mutant]] = (
    Mutant("waiting is billed", evolve, "_evolve_lease", _from_its_wait, "admission", seed=15),
    Mutant("waiting ends at once", admission, "WAIT_MS_MAX", 20_000, "admission", seed=15),
    Mutant(
        "waiting counts as a late start", deadlines, "_start_by", _from_its_grant, "start", seed=15
    ),
    Mutant("a lease waits again", admission, "decide_wait", _again, "admission", seed=15),
    Mutant(
        "leases run after their end", reports, "decide_report", _ended_or_not, "admission", seed=31
    ),
    Mutant(
        "a smaller quota is lent twice",
        planned_pool,
        "_faulty_held",
        _only_what_is_left,
        "slots",
        seed=55,
    ),
    Mutant("a quota never changes", evolve, "_with_slots", _as_before, "slots", seed=17),
)
