"""Jobs by status, suffix and metadata."""

import msgspec
import pytest

from schemas.sealed import Sealed
from services.gateway.jobs.domain.job_filter import JobFilter
from services.gateway.views.tables.jobs import JOBS, JobRow
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only

TEXTS = {
    b"suffix": "demo",
    b"pairs": '{"team": "search", "env": "ci"}',
    b"odd": "erased",
    b"tags": '["night", "v2"]',
}
NIGHT = JobFilter({}, words={"tags": ["night"]})
ROW = only(folded("job", SUBMITTED), JOBS)


def with_texts(**names: bytes) -> JobRow:
    texts = {
        field: Sealed(key_id="k", nonce=b"n", ciphertext=name) for field, name in names.items()
    }
    return msgspec.structs.replace(ROW, spec=msgspec.structs.replace(ROW.spec, **texts))


def unseal(value: Sealed | None, _field: str) -> str | None:
    return None if value is None else TEXTS[value.ciphertext]


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (JobFilter({}), True),
        (JobFilter({}, status="validating_files"), True),
        (JobFilter({}, status="running"), False),
        (JobFilter({}, suffix="demo"), True),
        (JobFilter({}, suffix="Demo"), False),
        (JobFilter({"team": "search"}), True),
        (JobFilter({"team": "search", "env": "prod"}), False),
        (JobFilter(None), False),
        (JobFilter({"team": "search"}, "validating_files", "demo"), True),
        (JobFilter({"team": "search"}, "validating_files", "other"), False),
        (NIGHT, True),
        (JobFilter({}, words={"tags": ["night", "v2"]}), True),
        (JobFilter({}, words={"tags": ["night", "v3"]}), False),
        (JobFilter({}, search=" "), True),
        (JobFilter({}, search="DEM"), True),
        (JobFilter({}, search="nigh team Sear"), True),
        (JobFilter({}, search=f"{ROW.id[-6:]} {ROW.spec.base.base_id}"), True),
        (JobFilter({}, search="demo none"), False),
    ],
)
def test_first_hour_every_part_of_a_filter_counts(wanted: JobFilter, matches: bool) -> None:
    row = with_texts(suffix=b"suffix", metadata=b"pairs", tags=b"tags")
    assert wanted.matches(row, unseal) is matches


def test_first_hour_jobs_without_suffix_or_metadata_have_neither() -> None:
    assert not JobFilter({}, suffix="demo").matches(ROW, unseal)
    assert JobFilter(None).matches(ROW, unseal)
    assert not JobFilter({"team": "search"}).matches(ROW, unseal)
    assert not NIGHT.matches(ROW, unseal)
    erased = with_texts(metadata=b"odd")
    assert not JobFilter({"team": "search"}).matches(erased, unseal)


def test_first_hour_only_a_filter_that_asks_for_something_is_applied() -> None:
    assert JobFilter({}).is_empty
    for wanted in (
        JobFilter(None),
        JobFilter({"a": "b"}),
        JobFilter({}, "paused"),
        JobFilter({}, words={"tags": ["a"]}),
    ):
        assert not wanted.is_empty
