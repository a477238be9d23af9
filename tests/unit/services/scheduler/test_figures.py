"""Metrics of the scheduler's states and decisions, with a bounded number of series."""

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from immutables import Map
from msgspec.structs import replace
from prometheus_client import REGISTRY

from schemas.admission import BudgetAlert, BudgetThresholdReached
from schemas.node import DeviceFault, ReportDeviceFaults
from schemas.pool import CreditCause, LeaseGranted
from schemas.reasons import device_fault
from schemas.session import SessionTerms
from schemas.streams import GLOBAL
from services.scheduler.app import JOBS, POOLS
from services.scheduler.domain.job.budgets import THRESHOLDS
from services.scheduler.domain.pool.state import Pool
from services.scheduler.domain.session.state import Session
from services.scheduler.figures import (
    PoolMeter,
    count_jobs,
    figures_of_pool,
    figures_of_pools,
    figures_of_sessions,
    figures_of_tenants,
)
from simulator.control_plane.samples import POOL, T0, describe, limits, node, request, submit
from tests.unit.services.scheduler.fold import Decider
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.telemetry.figures import StateValue

TENANTS = 1_000


def values(figures: Iterable[StateValue]) -> dict[tuple[str, ...], float]:
    return {(figure.metric.name, *figure.labels): figure.value for figure in figures}


def ask(pool: Decider, job_id: str, tenant: str = "acme") -> None:
    described = describe(job_id)
    pool.when(replace(described, tenant=tenant))
    asked = request(job_id)
    pool.when(replace(asked, placement=replace(asked.placement, tenant=tenant)))


def test_queue_leases_nodes_and_slots_of_a_pool() -> None:
    pool = Decider(POOLS, POOL, T0)
    pool.when(node("a", "a-1", 2))
    pool.when(node("b", "b-1", 2))
    hot = DeviceFault(device=1, reason=device_fault("throttled"))
    pool.when(ReportDeviceFaults(node_id="b", incarnation="b-1", faults=(hot,)))
    for number in range(5):
        ask(pool, f"ftjob-{number}")
    shown = values(figures_of_pool(POOL, pool.state[POOL]))
    waiting = sum(value for (name, *_), value in shown.items() if name == "tunery_pool_waiting")
    assert waiting == 2
    lane = request("ftjob-0").placement.lane
    assert shown["tunery_pool_slots_lacking", POOL, lane, "cpu"] == 2
    several = request("ftjob-9")
    pool.when(describe("ftjob-9"))
    pool.when(replace(several, placement=replace(several.placement, slots=2, device="cuda")))
    shown |= values(figures_of_pool(POOL, pool.state[POOL]))
    assert shown["tunery_pool_slots_lacking", POOL, lane, "cuda"] == 2
    assert shown["tunery_pool_slots_lacking", POOL, lane, "cpu"] == 2, (
        "what is granted counts no more"
    )
    assert shown["tunery_pool_leases", POOL, "granted"] == 3
    assert shown["tunery_pool_nodes", POOL, "up"] == 2
    assert shown["tunery_pool_slots", POOL, "offered"] == 3
    assert shown["tunery_pool_slots", POOL, "leased"] == 3
    assert shown["tunery_pool_devices_faulty", POOL, "throttled"] == 1
    (oldest,) = (
        value
        for (name, *_), value in shown.items()
        if name == "tunery_pool_oldest_submitted_timestamp_seconds"
    )
    assert oldest == request("ftjob-0").placement.first_submitted_at / 1_000


def test_a_thousand_tenants_make_no_more_series_than_one() -> None:
    """Issue 19: cardinality."""

    def series(tenants: int) -> tuple[set[tuple[str, ...]], Counter[str]]:
        pool, jobs = Decider(POOLS, POOL, T0), Decider(JOBS, "t-0", T0)
        pool.when(node("a", "a-1", 1))
        for number in range(tenants):
            tenant, job_id = f"t-{number}", f"ftjob-{number}"
            ask(pool, job_id, tenant)
            ask(pool, f"{job_id}-more", tenant)
            jobs.when(limits(), key=tenant)
            jobs.when(submit(job_id), key=tenant)
        shown = values(figures_of_pool(POOL, pool.state[POOL])) | values(
            figures_of_tenants(jobs.state)
        )
        totals: Counter[str] = Counter()
        for (name, *_), value in shown.items():
            totals[name] += int(value)
        return set(shown), totals

    single, _ = series(1)
    thousand, totals = series(TENANTS)
    assert thousand == single
    assert (totals["tunery_jobs_open"], totals["tunery_tenants"]) == (TENANTS, TENANTS)
    assert totals["tunery_pool_waiting"] == 2 * TENANTS - 1
    assert totals["tunery_pool_slots_lacking"] == 2 * TENANTS - 1


def value_of(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_wait_of_a_placement_is_measured_from_queue_to_grant() -> None:
    meter, pool = PoolMeter(), Decider(POOLS, POOL, T0)

    def count(events: tuple[object, ...]) -> None:
        meter.count(Settled("pool", 0, 0, "c", events, pool.at))

    lane = request("ftjob-1").placement.lane
    sum_before = value_of("tunery_pool_wait_seconds_sum", lane=lane)
    count_before = value_of("tunery_pool_wait_seconds_count", lane=lane)
    pool.when(describe("ftjob-1"))
    count(pool.when(request("ftjob-1")))
    pool.at += 90_000
    granted = pool.when(node("a", "a-1", 1))
    assert any(isinstance(event, LeaseGranted) for event in granted)
    count(granted)
    count(granted)  # when it was queued is unknown: it is not measured
    assert value_of("tunery_pool_wait_seconds_sum", lane=lane) - sum_before == 90
    assert value_of("tunery_pool_wait_seconds_count", lane=lane) - count_before == 1


def test_events_that_are_no_ends_count_nothing() -> None:
    before = value_of("tunery_jobs_ended_total", outcome="cancelled")
    jobs = Decider(JOBS, "acme", T0)
    count_jobs(Settled("job", 0, 0, "c", jobs.when(limits()), T0))
    assert value_of("tunery_jobs_ended_total", outcome="cancelled") == before


def test_budgets_that_reach_a_share_are_counted_from_zero_on() -> None:
    for percent in THRESHOLDS:
        labels = {"percent": str(percent)}
        before = REGISTRY.get_sample_value("tunery_budget_thresholds_total", labels)
        assert before is not None, percent
        alert = BudgetAlert(budget_id="tenant", month="2026-11", percent=percent)
        reached = BudgetThresholdReached(alert=alert)
        count_jobs(Settled("job", 0, 0, "c", (reached,), T0))
        assert value_of("tunery_budget_thresholds_total", **labels) == before + 1


def test_credits_of_every_cause_begin_at_zero_so_that_the_first_is_growth() -> None:
    PoolMeter()
    for cause in get_args(CreditCause):
        value = REGISTRY.get_sample_value("tunery_credited_gpu_seconds_total", {"cause": cause})
        assert value is not None, cause


def test_what_all_pools_know_is_no_pool_of_its_own() -> None:
    pools = Map({POOL: Pool(), GLOBAL: Pool(withdrawn=Map({"n1": 2}))})
    shown = list(figures_of_pools(pools))
    assert shown
    assert {labels[0] for figure in shown if (labels := figure.labels)} == {POOL}


def test_sessions_that_have_ended_count_no_more() -> None:
    terms = SessionTerms(client="c", max_tokens=1, max_ms=1)
    session = Session(tenant="acme", terms=terms, touched_at=0, waiting=2)
    ending, ended = replace(session, ending="client"), replace(session, closed_at=1)
    counted = values(figures_of_sessions(Map(a=session, b=session, c=ending, d=ended)))
    assert counted == {
        ("tunery_sessions_open", "open"): 2,
        ("tunery_sessions_open", "ending"): 1,
        ("tunery_session_commands_waiting",): 6,
    }
