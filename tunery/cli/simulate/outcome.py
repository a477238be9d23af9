"""How long the jobs of a played trace waited, what was lost, and how slots were used."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from schemas.units import HOUR_MS, MICRO, Ms
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.cli.simulate.trace_player import Played, PlayedJob, QueueSample
from tunery.plan.scheduling.requests import LANES

# What each lane is promised: the key of its share, and the wait.
PROMISES: Final[Mapping[str, tuple[str, Ms]]] = {
    "premium": ("premium_under_5min_pct", 300_000),
    "standard": ("standard_under_1h_pct", HOUR_MS),
    "free": ("free_under_24h_pct", 24 * HOUR_MS),
}


def outcome(played: Played, slots: int) -> dict[str, float | int]:
    """Figures of a played trace, by their names. `slots`: of the whole pool."""
    jobs = played.jobs
    waits = sorted(job.wait_ms for job in jobs)
    used = sum(job.job.duration_ms * job.job.slots for job in jobs)
    began = min(job.job.submitted_at for job in jobs)
    ended = max(job.ends_at for job in jobs)
    spans = sorted(job.ends_at - job.job.submitted_at for job in jobs)
    slowdowns = sorted(_slowdown(job) for job in jobs)
    of_tenants = [*_tenant_slowdowns(jobs).values()]
    figures: dict[str, float | int] = {
        "jobs": len(jobs),
        "mean_wait_h": _hours(sum(waits) / len(waits)),
        "p50_wait_h": _hours(_quantile(waits, 50)),
        "p95_wait_h": _hours(_quantile(waits, 95)),
        "p99_wait_h": _hours(_quantile(waits, 99)),
        "max_wait_h": _hours(waits[-1]),
        "mean_completion_h": _hours(sum(spans) / len(jobs)),
        "p50_completion_h": _hours(_quantile(spans, 50)),
        "p99_completion_h": _hours(_quantile(spans, 99)),
        "makespan_h": _hours(ended - began),
        "utilisation_pct": round(100 * used / _slot_ms(played, slots, began, ended), 2),
        "fragmentation_pct": fragmentation_pct(played.samples),
        "preemptions": sum(job.preemptions for job in jobs),
        "gpu_hours_lost": _hours(sum(job.lost_ms for job in jobs)),
        "gpu_hours_lost_pct": round(100 * sum(job.lost_ms for job in jobs) / used, 3),
        "worst_tenant_slowdown": round(max(of_tenants), 2),
        "fairness_pct": round(
            100 * sum(of_tenants) ** 2 / (len(of_tenants) * sum(each**2 for each in of_tenants)), 1
        ),
        "p99_slowdown": round(slowdowns[len(slowdowns) * 99 // 100], 2),
    }
    figures |= calibration([job.job for job in jobs])
    if played.spot is not None:
        spot = played.spot
        figures |= {
            "interruptions": sum(len(job.interrupted_at) for job in jobs),
            "spot_nodes_lost": spot.lost,
            "spot_node_hours": _hours(spot.machine_ms),
        }
        if spot.cost_micro:
            figures["spot_node_cost"] = round(spot.cost_micro / MICRO, 2)
    for number, lane in enumerate(LANES):
        key, promise_ms = PROMISES[lane]
        of_lane = [job for job in jobs if job.job.lane == number]
        if of_lane:
            kept = sum(job.wait_ms < promise_ms for job in of_lane)
            figures[key] = round(100 * kept / len(of_lane), 2)
    for (lane_number, size), of_size in sorted(waits_by_size(played).items()):
        name = f"{LANES[lane_number]}_from_{size}_slots"
        figures[f"{name}_p99_wait_h"] = _hours(_quantile(of_size, 99))
        figures[f"{name}_max_wait_h"] = _hours(of_size[-1])
    return figures


def waits_by_size(played: Played) -> dict[tuple[int, int], list[Ms]]:
    """Waits in order, by lane and size: 1 slot, from 2, from 4, from 8 and so on.

    A share of all jobs hides those that are few: whole nodes and gangs wait the longest.
    """
    waits: dict[tuple[int, int], list[Ms]] = {}
    for job in sorted(played.jobs, key=lambda job: job.wait_ms):
        size = 1 << (job.job.slots.bit_length() - 1)
        waits.setdefault((job.job.lane, size), []).append(job.wait_ms)
    return waits


def calibration(jobs: Sequence[TraceJob]) -> dict[str, float]:
    """Share of the jobs that took no longer than their estimates: 50 and 85 to 95 are good.

    What failed or was cancelled says nothing of how long its work takes.
    """
    done = [job for job in jobs if job.succeeded]
    upper = [job for job in done if job.upper_ms]
    shares: dict[str, float] = {}
    if done:
        shares["within_p50_pct"] = _share([job.duration_ms <= job.estimate_ms for job in done])
    if upper:
        shares["within_p90_pct"] = _share([job.duration_ms <= job.upper_ms for job in upper])
    return shares


def calibration_of_works(jobs: Sequence[TraceJob]) -> list[dict[str, float | int | str]]:
    """The calibration of each kind of work, of which a trace says something, by its name."""
    by_work: dict[str, list[TraceJob]] = {}
    for job in jobs:
        if job.work and job.succeeded:
            by_work.setdefault(job.work, []).append(job)
    return [
        {
            "work": work,
            "jobs": len(of_work),
            "median_of_estimate_pct": _quantile(
                sorted(100 * job.duration_ms // job.estimate_ms for job in of_work), 50
            ),
            **calibration(of_work),
        }
        for work, of_work in sorted(by_work.items())
    ]


def _share(hits: Sequence[bool]) -> float:
    return round(100 * sum(hits) / len(hits), 2)


def _slot_ms(played: Played, slots: int, began: Ms, ended: Ms) -> int:
    """Slots of all nodes over that time; spot nodes count while they are there."""
    if played.spot is None:
        return slots * (ended - began)
    steps = [*played.samples, replace(played.samples[-1], at=ended)]
    return sum(now.slots * (later.at - now.at) for now, later in pairwise(steps))


def fragmentation_pct(samples: Sequence[QueueSample]) -> float:
    """Slots that stand free while jobs wait, of all slots and over the time in which jobs wait."""
    idle, waiting_slot_ms = 0, 0
    for now, later in pairwise(samples):
        if now.waiting:
            idle += max(0, now.slots - now.used) * (later.at - now.at)
            waiting_slot_ms += now.slots * (later.at - now.at)
    return round(100 * idle / waiting_slot_ms, 2) if waiting_slot_ms else 0.0


def _slowdown(job: PlayedJob) -> float:
    """Time from submission to the end, as a multiple of its run undisturbed (an hour at least)."""
    least_ms = max(HOUR_MS, job.job.duration_ms)
    return max(1.0, (job.ends_at - job.job.submitted_at) / least_ms)


def _tenant_slowdowns(jobs: Sequence[PlayedJob]) -> dict[str, float]:
    """Fairness: the mean slowdown of each tenant."""
    by_tenant: dict[str, list[float]] = {}
    for job in jobs:
        by_tenant.setdefault(job.job.tenant, []).append(_slowdown(job))
    return {tenant: sum(all_of) / len(all_of) for tenant, all_of in by_tenant.items()}


def _quantile(ordered: Sequence[Ms], percent: int) -> Ms:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _hours(ms: float) -> float:
    return round(ms / HOUR_MS, 3)
