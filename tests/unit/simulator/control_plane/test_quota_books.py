"""The second books of `job`: what they accept of the decider, and what they object to."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.admission import SuspensionSet
from schemas.billing import Rate
from schemas.envelope import Message, Rejected, Tick
from schemas.job import HoldTaken, JobEnded, ResumeJob
from schemas.reasons import refusing
from schemas.units import HOUR_MS
from simulator.control_plane.quota_books import Charged, Quota, month
from simulator.control_plane.samples import T0, limits, submit
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import JOB_ID, LIVES, TENANT, new_tenant


def booked(*commands: Message) -> tuple[Quota, tuple[Any, ...]]:
    """The books after the decisions on these commands, and the events of the last one."""
    quota, decider = Quota(), new_tenant()
    events: tuple[Any, ...] = ()
    for command in commands:
        events = decider.when(command)
        quota.enter(TENANT, command, events, decider.at)
    return quota, events


def invariants(quota: Quota) -> set[str]:
    return {violation.partition(":")[0] for violation in quota.violations}


def test_a_job_from_its_submission_to_its_end_is_booked_without_objection() -> None:
    quota, _ = booked(*LIVES["done"])
    assert quota.violations == []
    assert (set(quota.ended), quota.open_jobs) == ({JOB_ID}, set())
    assert quota.charges[JOB_ID].price_version == "2026-11"
    book = quota.tenants[TENANT]
    assert (book.holds, book.promised, book.running) == ({}, {}, 0)


def test_a_second_job_above_the_concurrency_limit_is_found() -> None:
    _, second = booked(limits(), submit("ftjob-2"))
    quota, _ = booked(limits(concurrency=1), submit(JOB_ID))
    quota.enter(TENANT, submit("ftjob-2"), second, T0)
    assert invariants(quota) == {"limit"}


def test_a_plan_that_is_to_come_is_in_force_from_its_time_on() -> None:
    quota = Quota()
    for terms, effective_at in ((limits().terms, 0), (limits(lane="free").terms, T0 + 5)):
        event = of(new_tenant().when(limits()), object)
        quota.enter(TENANT, Tick(), (replace(event, terms=terms, effective_at=effective_at),), T0)
    book = quota.tenants[TENANT]
    for at, lane in ((T0 + 4, "standard"), (T0 + 5, "free")):
        quota.enter(TENANT, Tick(), (), at)
        assert book.terms is not None
        assert book.terms.lane == lane


def test_a_hold_above_the_month_is_found() -> None:
    hold = of(_admission(), HoldTaken)
    quota, _ = booked(limits(hard=hold.estimate.hold_gpu_ms))
    quota.enter(TENANT, Tick(), _admission(), T0)
    assert quota.violations == []
    quota, _ = booked(limits(hard=hold.estimate.hold_gpu_ms - 1))
    quota.enter(TENANT, Tick(), _admission(), T0)
    assert invariants(quota) == {"limit"}


def test_a_hold_of_a_suspended_tenant_is_found() -> None:
    quota, _ = booked(limits())
    quota.enter(TENANT, Tick(), (*_admission()[:1], SuspensionSet(suspended=True)), T0)
    assert quota.violations == []
    quota.enter(TENANT, Tick(), _admission()[1:], T0)
    assert invariants(quota) == {"suspended"}


@pytest.mark.parametrize("code", [errors.CONCURRENCY_LIMIT, errors.HARD_LIMIT, errors.SUSPENDED])
def test_a_refusal_without_its_cause_is_found(code: str) -> None:
    quota, _ = booked(limits())
    refused = Rejected(code=code, reason=refusing("job_missing", job_id=JOB_ID))
    quota.enter(TENANT, submit(JOB_ID), (refused,), T0)
    assert invariants(quota) == {"refusal"}


@pytest.mark.parametrize("command", [submit("ftjob-2"), ResumeJob(job_id="ftjob-2")])
def test_a_refusal_at_the_concurrency_limit_is_justified(command: Message) -> None:
    quota, _ = booked(limits(concurrency=1), submit(JOB_ID))
    reason = refusing("job_missing", job_id=JOB_ID)
    refused = Rejected(code=errors.CONCURRENCY_LIMIT, reason=reason)
    quota.enter(TENANT, command, (refused,), T0)
    assert quota.violations == []


def test_a_job_that_ends_twice_or_releases_another_rest_is_found() -> None:
    quota, events = booked(*LIVES["done"])
    quota.enter(TENANT, Tick(), (of(events, JobEnded),), T0)
    assert quota.violations == [f"end: {JOB_ID} ended twice"]
    quota, _ = booked(*LIVES["registering"])
    ended = of(events, JobEnded)
    wrong = replace(ended, released_gpu_ms=ended.released_gpu_ms + 1)
    quota.enter(TENANT, Tick(), (wrong,), T0)
    assert invariants(quota) == {"hold"}


def charged(**changes: Any) -> Charged:
    fields: dict[str, Any] = {
        "key_id": None,
        "price_version": "p",
        "lane": "standard",
        "currency": "EUR",
        "gpu_hour_micro": 100,
    }
    return Charged(**(fields | changes))


@pytest.mark.parametrize(("halves", "micro"), [(1, 0), (2, 1), (3, 2), (5, 2), (7, 4)])
def test_a_cost_is_rounded_once_and_half_to_even(halves: int, micro: int) -> None:
    assert charged(time=halves * HOUR_MS // 2).cost() == micro


def test_tokens_cost_beside_time_and_time_below_zero_costs_nothing() -> None:
    assert charged(tokens=3_000_000, token_micro_per_million=7, time=-HOUR_MS).cost() == 21


def test_a_rate_that_says_more_comes_before_one_that_says_less() -> None:
    described: tuple[tuple[Any, Any, Any], ...] = (
        ("train", "h200", True),
        ("train", "h200", None),
        ("train", None, None),
        (None, "cpu", None),
    )
    rates = tuple(
        Rate(lane="standard", role=role, device=device, spot=spot, gpu_hour_micro=micro)
        for micro, (role, device, spot) in enumerate(described, start=1)
    )
    job = charged(rates=rates)
    assert job.hourly("train", "h200", spot=True) == 1
    assert job.hourly("train", "h200", spot=False) == 2
    assert job.hourly("train", "a100", spot=False) == 3
    assert job.hourly("eval", "a100", spot=False) == 4
    assert charged().hourly("eval", "a100", spot=False) == 100


def test_a_month_is_that_of_the_hour_in_utc() -> None:
    november = 1_762_000_000_000 // HOUR_MS
    assert month(november) == "2025-11"
    assert month(november + 31 * 24) == "2025-12"


def _all_events(phase: Any) -> list[Any]:
    decider = new_tenant()
    return [event for command in LIVES[phase] for event in decider.when(command)]


def _admission() -> tuple[Any, ...]:
    """The submission and the hold of one job."""
    wanted = ("JobSubmitted", "HoldTaken")
    return tuple(event for event in _all_events("queued") if type(event).__name__ in wanted)
