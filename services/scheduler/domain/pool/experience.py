"""Expected duration of work, learned from ended work in the pool."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.pool import LeaseMember, Placement, PlacementClosed
from schemas.training import ExpectedTime
from services.scheduler.domain.pool.state import Lease, Pool
from tunery.plan.durations import expect, learn


def classes_of(pool: Pool, placement: Placement, model: str = "") -> tuple[str, ...]:
    """Return classes of a placement by expected duration, the narrowest first.

    Work of one class takes the same multiple of its estimate: the same base model on as many such
    devices, first of the same tenant.

    model: model of its devices. Where it is known, classes of that model come before the rest.
    """
    works = pool.works.get(placement.job_id, ())
    bases = (known.work.base_id for known in works if known.work_id == placement.work_id)
    base_id = next(bases, "")
    name = f"{placement.role} {placement.device} {placement.slots} {base_id}"
    classes = f"{name} {placement.tenant}", name
    return (f"{name} on {model}", *classes) if model else classes


def model_of(pool: Pool, members: Sequence[LeaseMember]) -> str:
    """The model of the devices that a lease has; empty: it is not known."""
    nodes = (pool.nodes[each.node_id] for each in members if each.node_id in pool.nodes)
    return next((node.description.accelerator for node in nodes), "")


def expected_time(pool: Pool, placement: Placement) -> ExpectedTime | None:
    """Expected time of a placement by similar ended work; None: use its estimate."""
    asked = placement.constraints
    classes = classes_of(pool, placement, "" if asked is None else asked.accelerator)
    return expect(pool.durations, classes, placement.p50_ms, placement.p90_ms)


def with_duration(pool: Pool, lease: Lease, event: PlacementClosed, ctx: Context) -> Pool:
    """Learn the duration of a successful attempt that began at the first step."""
    if event.end.outcome != "succeeded" or lease.first_step or not lease.forecast.classes:
        return pool
    took_ms = event.end.used_gpu_ms // lease.slots
    forecast = lease.forecast
    learnt = learn(pool.durations, forecast.classes, forecast.estimate_ms, took_ms, ctx.at)
    return replace(pool, durations=learnt)
