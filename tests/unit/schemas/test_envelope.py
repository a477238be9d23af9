"""Names of messages on the wire, and what every message has."""

import msgspec
import pytest

from schemas.envelope import Reason, versioned


@pytest.mark.parametrize(
    ("name", "tag"),
    [("JobEnded", "JobEnded.v1"), ("JobEndedV2", "JobEnded.v2"), ("PlanV12", "Plan.v12")],
)
def test_the_version_of_a_message_ends_its_name(name: str, tag: str) -> None:
    assert versioned(name) == tag


def test_reasons_without_parameters_share_nothing() -> None:
    first, second = Reason(code="a"), Reason(code="b")
    assert first.params is not second.params
    assert msgspec.json.encode(first) == b'{"code":"a","params":{}}'
