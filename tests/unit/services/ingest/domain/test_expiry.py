"""Expiry of files and uploads, and the next deadline."""

import pytest
from immutables import Map

from schemas.dataset import PinTerms
from services.ingest.app import DATASETS
from services.ingest.domain.expiry import EXPIRED_MAX, due, expires_at
from services.ingest.domain.state import LineageHold, Pin, TenantDatasets
from tests.ticks import next_tick
from tests.unit.services.ingest.domain.test_decide import SPEC

PIN = Pin(
    prepare_id="p", terms=PinTerms(training_file="pinned", validation_file="second", spec=SPEC)
)
HOLD = LineageHold(model_id="m", files=("held",))


def expiring(**moments: int) -> TenantDatasets:
    return TenantDatasets(expires=Map(moments), pins=Map(j=PIN), kept=Map(k=HOLD))


@pytest.mark.parametrize(("after_ms", "expected"), [(None, None), (0, 7), (3, 10)])
def test_a_lifetime_counts_from_the_moment_of_creation(
    after_ms: int | None, expected: int | None
) -> None:
    assert expires_at(7, after_ms) == expected


def test_the_oldest_expire_first_and_the_last_moment_counts() -> None:
    tenant = expiring(b=5, a=5, later=11, now=10, c=1)
    assert due(tenant, 10) == ["c", "a", "b", "now"]
    assert due(tenant, 0) == []
    assert due(TenantDatasets(), 10) == []


def test_files_that_a_job_or_a_model_needs_do_not_expire() -> None:
    tenant = expiring(pinned=1, second=1, held=1, free=9)
    assert due(tenant, 10) == ["free"]
    assert next_tick(DATASETS, Map(acme=tenant)) == (9, "acme")


def test_one_tick_expires_a_bounded_number_of_files() -> None:
    tenant = expiring(**{f"f{number:03}": number for number in range(EXPIRED_MAX + 1)})
    assert due(tenant, 1_000) == [f"f{number:03}" for number in range(EXPIRED_MAX)]


def test_the_next_expiry_is_the_earliest_of_all_tenants() -> None:
    state = Map(acme=expiring(a=9), beta=expiring(b=3, c=2), idle=TenantDatasets())
    assert next_tick(DATASETS, state) == (2, "beta")


def test_without_a_file_that_can_expire_there_is_no_next_expiry() -> None:
    assert next_tick(DATASETS, Map()) is None
    assert next_tick(DATASETS, Map(acme=expiring(pinned=1))) is None
