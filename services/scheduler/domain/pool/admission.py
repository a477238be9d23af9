"""Leases of an elastic node, which wait until its cluster admits them."""

from collections.abc import Sequence
from typing import Final

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.pool import Event, LeaseAdmitted, LeaseMember, LeaseWaits, ReportWait
from schemas.reasons import refusing, waiting
from schemas.units import DAY_MS, HOUR_MS, Ms
from services.scheduler.domain.pool.state import Lease, Pool

CONDITION_MAX: Final = 500  # characters of what a cluster says about a lease
WAIT_MS_MAX: Final[Ms] = HOUR_MS  # that a cluster may take to admit a lease, where no node says it
WAIT_MS_LIMIT: Final[Ms] = DAY_MS  # whatever a node says


def wait_ms_max(pool: Pool, members: Sequence[LeaseMember]) -> Ms:
    """Return how long a lease may wait for its cluster, by the agent of its node."""
    nodes = (pool.nodes.get(member.node_id) for member in members)
    said = next((node.description.admission_ms_max for node in nodes if node is not None), 0)
    return min(said, WAIT_MS_LIMIT) if said > 0 else WAIT_MS_MAX


def decide_wait(pool: Pool, lease: Lease, command: ReportWait, ctx: Context) -> tuple[Event, ...]:
    """A lease waits for its cluster once: after its admission, its start or its end it does not."""
    node_id = lease.members[0].node_id
    node = pool.nodes.get(node_id)
    if node is None or not node.description.elastic:
        fixed = refusing("node_not_elastic", node_id=node_id)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=fixed),)
    if lease.started_at is not None or lease.admitted_at is not None or lease.killed_at is not None:
        return ()
    if command.wait is None:
        return () if lease.wait is None else (LeaseAdmitted(lease=lease.ref),)
    condition = command.wait.condition[:CONDITION_MAX]
    reason = waiting("cluster_admission", cause=command.wait.cause, condition=condition)
    if reason == lease.wait:
        return ()
    since = ctx.at if lease.waits_since is None else lease.waits_since
    return (LeaseWaits(lease=lease.ref, since=since, reason=reason),)
