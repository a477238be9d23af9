"""An invoice's amounts by what jobs have in common."""

import pytest
from msgspec.structs import replace

from services.gateway.billing.domain.invoice_responses import line_responses
from services.gateway.billing.domain.invoice_sums import SUM_GROUPS, sums_of_lines
from services.gateway.billing.domain.usage import JobFacts, groups_of
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.billing.domain.test_invoice_responses import USED, sample

INVOICE = sample(
    None,
    replace(USED, job_id="ftjob-2", used_gpu_ms=5_000, gpu_ms=5_000),
    replace(USED, job_id="ftjob-3", hour_utc=USED.hour_utc + 1),
)
LINES = list(line_responses(INVOICE))
JOBS = {
    "ftjob-1": JobFacts("smol", "key_1", "faq", {"team": "search"}),
    "ftjob-2": JobFacts("smol", "key_2", None, {"team": "ads", "run": "7"}),
    "ftjob-3": JobFacts("smol", "key_1", "faq", {"run": "7"}),
}


@pytest.mark.parametrize(
    ("names", "field", "expected"),
    [
        ("job", "job_id", [("ftjob-2", 5), ("ftjob-1", 2), ("ftjob-3", 2)]),
        ("key", "api_key_id", [("key_2", 5), ("key_1", 4)]),
        ("model", "model", [("smol", 9)]),
        ("suffix", "suffix", [("", 5), ("faq", 4)]),
        (
            "metadata[team]",
            "metadata",
            [({"team": "ads"}, 5), ({"team": "search"}, 2), ({"team": ""}, 2)],
        ),
    ],
)
def test_first_hour_18_amounts_are_summed_by(
    names: str, field: str, expected: list[tuple[object, int]]
) -> None:
    """A bill had no sum by job, key, suffix or metadata."""
    *of_jobs, rest = sums_of_lines(LINES, groups_of([names], SUM_GROUPS), JOBS)
    assert sorted(
        (str(getattr(entry, field)), entry.gpu_ms // 1_000) for entry in of_jobs
    ) == sorted((str(value), seconds) for value, seconds in expected)
    assert [entry.amount_micro for entry in of_jobs] == sorted(
        (entry.amount_micro for entry in of_jobs), reverse=True
    )
    assert (rest.of_jobs, rest.gpu_ms, getattr(rest, field)) == (False, 0, None)
    assert sum(entry.amount_micro for entry in (*of_jobs, rest)) == INVOICE.total_micro


def test_a_group_is_of_all_names_asked_for() -> None:
    both = sums_of_lines(LINES, groups_of(["key,metadata[run]"], SUM_GROUPS), JOBS)
    assert {(entry.api_key_id, str(entry.metadata)) for entry in both if entry.of_jobs} == {
        ("key_1", "{'run': ''}"),
        ("key_1", "{'run': '7'}"),
        ("key_2", "{'run': '7'}"),
    }
    assert len({entry.id for entry in both}) == len(both)


@pytest.mark.parametrize("names", ["day", "metadata", "metadata[]", "metadata[a],metadata[b]"])
def test_other_groups_are_refused(names: str) -> None:
    with pytest.raises(ApiError) as refused:
        groups_of([names], SUM_GROUPS)
    assert refused.value.param == "group_by"


def test_a_name_of_metadata_may_have_a_comma() -> None:
    assert groups_of(["job, metadata[a,b]"], SUM_GROUPS) == {"job", "metadata[a,b]"}
