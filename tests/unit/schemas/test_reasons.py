"""Reasons are compared as values: a code and its parameters."""

from schemas.envelope import Reason
from schemas.reasons import ending, skipping, waiting


def test_a_reason_is_its_code_and_its_parameters() -> None:
    assert waiting("no_capacity", slots=2) == Reason(code="no_capacity", params={"slots": 2})
    assert waiting("no_capacity", slots=2) != waiting("no_capacity", slots=3)
    assert ending("preempted") == Reason(code="preempted")
    assert skipping("blob_missing").params == {}
