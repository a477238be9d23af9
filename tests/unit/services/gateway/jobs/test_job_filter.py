"""Jobs by status, suffix and metadata."""

import msgspec
import pytest

from schemas.sealed import Sealed
from services.gateway.jobs.job_filter import JobFilter
from services.gateway.jobs.tables import JOBS
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only

TEXTS = {b"suffix": "demo", b"pairs": '{"team": "search", "env": "ci"}', b"odd": "erased"}
ROW = only(folded("job", SUBMITTED), JOBS)


def sealed(name: bytes) -> Sealed:
    return Sealed(key_id="k", nonce=b"n", ciphertext=name)


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
    ],
)
def test_first_hour_every_part_of_a_filter_counts(wanted: JobFilter, matches: bool) -> None:
    row = msgspec.structs.replace(ROW, suffix=sealed(b"suffix"), metadata=sealed(b"pairs"))
    assert wanted.matches(row, unseal) is matches


def test_first_hour_jobs_without_suffix_or_metadata_have_neither() -> None:
    assert not JobFilter({}, suffix="demo").matches(ROW, unseal)
    assert JobFilter(None).matches(ROW, unseal)
    assert not JobFilter({"team": "search"}).matches(ROW, unseal)
    erased = msgspec.structs.replace(ROW, metadata=sealed(b"odd"))
    assert not JobFilter({"team": "search"}).matches(erased, unseal)


def test_first_hour_only_a_filter_that_asks_for_something_is_applied() -> None:
    assert JobFilter({}).is_empty
    for wanted in (JobFilter(None), JobFilter({"a": "b"}), JobFilter({}, "paused")):
        assert not wanted.is_empty
