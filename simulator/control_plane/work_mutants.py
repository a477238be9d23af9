"""Rules of sweeps, serving pools, reports, erased jobs and nodes, one broken at a time."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.anomaly import RecordAnomaly
from schemas.envelope import Context
from schemas.erasure import JobsErased
from schemas.integrations import MirrorReported, RecordMirror
from schemas.job import Event, JobEnded, RecordVerdict
from schemas.serving import ServingEvent
from schemas.sweep import SweepCancelled, SweepSubmitted
from services.scheduler.domain.job import attempts, evolve, serving, steps, sweeps
from services.scheduler.domain.job import decide as jobs
from services.scheduler.domain.job.state import OpenJob, OpenSweep, TenantJobs
from services.scheduler.domain.pool import decide as pools
from services.scheduler.domain.pool import enrolment
from services.scheduler.domain.pool.state import Node
from simulator.event_core.mutants import Mutant

_follow, _over, _record = sweeps.follow_sweeps, sweeps._over_budget, attempts.record_anomaly
_next_step, _enrol = sweeps._next_step, enrolment._enrol
_serve, _mirror, _judge = serving.follow_serving, jobs._mirror, steps.after_verdict


def _only_after_ends(tenant: TenantJobs, events: Sequence[Event], ctx: Context) -> Any:
    """A sweep continues when a job has ended, and not when a paused one leaves its place."""
    stirring = (JobEnded, SweepSubmitted, SweepCancelled)
    stirs = any(isinstance(event, stirring) for event in events)
    return _follow(tenant, events, ctx) if stirs else ()


def _only_what_ended(tenant: TenantJobs, sweep: OpenSweep, needs: Any) -> Any:
    """The budget of a sweep forgets what its open jobs may still cost."""
    return _over(tenant, replace(sweep, open_runs=()), needs)


def _all_at_once(tenant: TenantJobs, sweep: OpenSweep, ctx: Context) -> Any:
    terms = replace(sweep.terms, at_once=1_000)
    return _next_step(tenant, replace(sweep, terms=terms), ctx)


def _again(job: OpenJob, command: RecordAnomaly) -> Any:
    return _record(replace(job, anomalies=()), command)


def _erased_at_once(*_: Any) -> Any:
    return (JobsErased(),)


def _nothing_refused(*_: Any) -> None:
    return None


def _in_service(node: Node) -> bool:
    """Cordoned nodes get leases as others do."""
    is_up = node.standing == "up" and node.ends_at is None
    return is_up and not node.joining and not node.leaving


def _every_device(node: Node) -> frozenset[int]:
    return frozenset(range(node.description.slots))


def _for_ever(pool: Any, key_number: int, command: Any, ctx: Context) -> Any:
    """A token is good after its end."""
    return _enrol(pool, key_number, command, replace(ctx, at=0))


def _first_key_again(pool: Any, _: int, command: Any, ctx: Context) -> Any:
    return _enrol(pool, 1, command, ctx)


def _any_token(*_: Any) -> bool:
    return True


def _only_after_terms(tenant: TenantJobs, events: Sequence[Event], ctx: Context) -> Any:
    """A serving pool is looked at when it changes, and not when there is room for it again."""
    stirs = any(isinstance(event, ServingEvent) for event in events)
    return _serve(tenant, events, ctx) if stirs else ()


def _no_turn(*_: Any) -> None:
    """No clock has what waits tried again."""


def _of_any_job(tenant: TenantJobs, command: RecordMirror) -> Any:
    return (MirrorReported(job_id=command.job_id, report=command.report),)


def _of_open_jobs(tenant: TenantJobs, command: RecordMirror) -> Any:
    """Drop reports of mirrors that arrive after the end of their job."""
    return _mirror(tenant, command) if command.job_id in tenant.jobs else ()


def _published_again(job: OpenJob, command: RecordVerdict) -> Any:
    """A version that is judged again is published a second time."""
    imported = job.spec.evaluation and replace(job.spec.evaluation, imported=True)
    return _judge(replace(job, spec=replace(job.spec, evaluation=imported)), command)


WORK_MUTANTS: Final = (
    Mutant(
        "serving pools wait for terms", jobs, "follow_serving", _only_after_terms, "stuck", seed=85
    ),
    Mutant("no month's turn has a review", evolve, "next_turn", _no_turn, "stuck", seed=85),
    Mutant("figures of unknown jobs are mirrored", jobs, "_mirror", _of_any_job, "mirror", seed=2),
    Mutant(
        "figures of ended jobs are not mirrored", jobs, "_mirror", _of_open_jobs, "mirror", seed=21
    ),
    Mutant("a gate run publishes", steps, "after_verdict", _published_again, "gate run", seed=22),
    Mutant("sweeps wait for ends", jobs, "follow_sweeps", _only_after_ends, "stuck", seed=1791),
    Mutant(
        "open jobs of a sweep are free", sweeps, "_over_budget", _only_what_ended, "sweep", seed=287
    ),
    Mutant("a sweep runs all at once", sweeps, "_next_step", _all_at_once, "sweep", seed=24),
    Mutant("anomalies are recorded again", attempts, "record_anomaly", _again, "anomaly", seed=14),
    Mutant(
        "jobs are erased while they run",
        jobs,
        "follow_erasure",
        _erased_at_once,
        "erasure",
        seed=48,
    ),
    Mutant(
        "erased tenants submit jobs", jobs, "refuse_closed", _nothing_refused, "erasure", seed=23
    ),
    Mutant("cordons are ignored", Node, "is_grantable", property(_in_service), "cordon", seed=2),
    Mutant(
        "faulty devices get leases", Node, "devices", property(_every_device), "device", seed=31
    ),
    Mutant("tokens never expire", enrolment, "_enrol", _for_ever, "enrolment", seed=13),
    Mutant(
        "withdrawn keys are given again",
        enrolment,
        "_enrol",
        _first_key_again,
        "enrolment",
        seed=13,
    ),
    Mutant("any token enrols", enrolment, "_is_same", _any_token, "enrolment", seed=13),
    Mutant(
        "withdrawn keys sign", pools, "refuse_withdrawn", _nothing_refused, "withdrawn", seed=375
    ),
)
