"""The money of a lease, with the worked example of the architecture."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.pool import LeaseRef, Token, UsageCredited
from schemas.units import HOUR_MS
from services.scheduler.domain.pool.usage import (
    BUDGET_NOTICE_MS,
    ChargedHour,
    Slice,
    cap_ms,
    lost_gpu_ms,
    newest_hours,
    notice_ms,
    skipped_gpu_ms,
    slices,
    take_back,
    whole_hours_ms,
)
from simulator.control_plane.samples import MINUTE, T0, checkpoint

HOUR = T0 // HOUR_MS
LEASE = LeaseRef(
    token=Token(pool="default", lease=1),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="standard",
    price_version="2026-11",
)


def test_the_example_of_the_architecture() -> None:
    """2 slots, start 13:20, 70 min of proof of life, checkpoint captured at 62 min, max 8 M."""
    start = T0 + 20 * MINUTE
    parts = slices(start, 0, 70 * MINUTE, 2, 8_000_000)
    assert parts == (
        Slice(HOUR, 4_800_000, 4_800_000),
        Slice(HOUR + 1, 3_600_000, 3_200_000),
    )
    billable = sum(line.billable_gpu_ms for line in parts)
    assert sum(line.used_gpu_ms for line in parts) == 8_400_000
    assert billable == 8_000_000
    assert lost_gpu_ms(billable, 2, 62 * MINUTE) == 560_000
    job = tuple(
        ChargedHour(lease=LEASE, hour_utc=part.hour_utc, gpu_ms=part.billable_gpu_ms)
        for part in parts
    )
    assert of_hours(newest_hours(job, 560_000)) == [(HOUR + 1, 560_000)]
    assert of_hours(newest_hours(job, 3_300_000)) == [(HOUR, 100_000), (HOUR + 1, 3_200_000)]
    assert of_hours(newest_hours(job, 10**9)) == [(HOUR, 4_800_000), (HOUR + 1, 3_200_000)]


def of_hours(charged: Iterable[ChargedHour]) -> list[tuple[int, int]]:
    return [(hour.hour_utc, hour.gpu_ms) for hour in charged]


def credited(hour_utc: int, gpu_ms: int, used_by: LeaseRef | None = None) -> UsageCredited:
    return UsageCredited(
        lease=LEASE, hour_utc=hour_utc, lost_gpu_ms=gpu_ms, cause="lost", used_by=used_by
    )


def test_a_credit_takes_back_what_its_hour_is_charged_and_then_the_newest_of_the_rest() -> None:
    job = tuple(ChargedHour(lease=LEASE, hour_utc=hour, gpu_ms=10) for hour in (1, 2, 2, 3))
    assert of_hours(take_back(job, credited(2, 15))) == [(1, 10), (2, 5), (3, 10)]
    legacy = take_back(job, credited(3, 25))  # as credits were before they were split
    assert of_hours(legacy) == [(1, 10), (2, 5)]
    assert take_back(job, credited(3, 1_000)) == ()


def test_a_credit_gives_back_what_each_lease_was_charged_in_the_hour() -> None:
    """Two attempts of one hour may have run on hardware of two prices."""
    other = replace(LEASE, token=replace(LEASE.token, lease=99))
    job = (
        ChargedHour(lease=other, hour_utc=1, gpu_ms=10),
        ChargedHour(lease=LEASE, hour_utc=1, gpu_ms=10),
    )
    parts = newest_hours(job, 15)
    assert [(part.lease, part.gpu_ms) for part in parts] == [(other, 5), (LEASE, 10)]
    (left,) = take_back(take_back(job, credited(1, 5, other)), credited(1, 10))
    assert (left.lease, left.gpu_ms) == (other, 5)


@given(
    paid=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), max_size=8),
    lost=st.integers(0, 900),
)
def test_a_split_credit_is_at_most_what_is_charged_in_any_hour(
    paid: list[tuple[int, int]], lost: int
) -> None:
    job = tuple(ChargedHour(lease=LEASE, hour_utc=h, gpu_ms=n) for h, n in sorted(paid))
    parts = newest_hours(job, lost)
    assert sum(part.gpu_ms for part in parts) == min(lost, sum(n for _, n in paid))
    left = job
    for hour_utc, part in of_hours(parts):
        assert 0 < part <= sum(hour.gpu_ms for hour in left if hour.hour_utc == hour_utc)
        left = take_back(left, credited(hour_utc, part))
    assert sum(hour.gpu_ms for hour in left) == max(0, sum(n for _, n in paid) - lost)


@given(
    start=st.integers(0, 10**13),
    cuts=st.lists(st.integers(0, 20 * HOUR_MS), min_size=2, max_size=6).map(sorted),
    slots=st.integers(1, 8),
    gpu_ms_max=st.integers(0, 60 * HOUR_MS),
)
def test_slices_add_up_however_they_are_cut(
    start: int, cuts: list[int], slots: int, gpu_ms_max: int
) -> None:
    whole = slices(start, cuts[0], cuts[-1], slots, gpu_ms_max)
    parts = [
        line for low, high in pairwise(cuts) for line in slices(start, low, high, slots, gpu_ms_max)
    ]
    used = slots * (cuts[-1] - cuts[0])
    for lines in (whole, tuple(parts)):
        assert sum(line.used_gpu_ms for line in lines) == used
        before, after = slots * cuts[0], slots * cuts[-1]
        capped = min(after, gpu_ms_max) - min(before, gpu_ms_max)
        assert sum(line.billable_gpu_ms for line in lines) == capped
        assert all(0 <= line.billable_gpu_ms <= line.used_gpu_ms for line in lines)
    assert [part.hour_utc for part in whole] == sorted({part.hour_utc for part in whole})


@given(start=st.integers(0, 10**13), alive=st.integers(0, 10**13))
def test_whole_hours_end_at_an_hour_that_has_passed(start: int, alive: int) -> None:
    until = whole_hours_ms(start, alive)
    if until:
        assert (start + until) % HOUR_MS == 0
        assert start + until <= alive < start + until + HOUR_MS


@pytest.mark.parametrize(
    ("loaded", "lost_minutes"),
    [("newest", 0), ("same attempt", 4), ("earlier attempt", 10 + 5), ("none", 10 + 30)],
)
def test_work_behind_a_skipped_checkpoint_is_counted(loaded: str, lost_minutes: int) -> None:
    """Two checkpoints of attempt 2 (10 and 6 min), two of attempt 1 (30 and 25 min)."""
    named = (
        checkpoint(40, attempt=2, captured_ms=10 * MINUTE),
        checkpoint(30, attempt=2, captured_ms=6 * MINUTE),
        checkpoint(20, attempt=1, captured_ms=30 * MINUTE),
        checkpoint(10, attempt=1, captured_ms=25 * MINUTE),
    )
    manifest = {
        "newest": named[0].manifest_sha256,
        "same attempt": named[1].manifest_sha256,
        "earlier attempt": named[3].manifest_sha256,
        "none": None,
    }[loaded]
    assert skipped_gpu_ms(named, manifest, 3) == 3 * lost_minutes * MINUTE


@given(gpu_ms_max=st.integers(0, 10**10), slots=st.integers(1, 64))
def test_the_notice_comes_before_the_cap(gpu_ms_max: int, slots: int) -> None:
    cap, notice = cap_ms(gpu_ms_max, slots), notice_ms(gpu_ms_max, slots)
    assert slots * cap <= gpu_ms_max
    assert 0 <= notice <= cap
    assert cap - notice <= BUDGET_NOTICE_MS
