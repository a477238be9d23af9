"""Waits in words: the interval in which something is expected to start."""

import pytest

from tunery.cli._queue_view import interval, queue_fields, refusal_line

NOW = 1_762_700_400  # 15:00 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("earliest", "latest", "shown"),
    [
        (None, None, ""),
        (NOW, NOW, "now"),
        (NOW, NOW + 3_600, "by 16:00"),
        (NOW + 3_600, NOW + 3_610, "16:00"),
        (NOW + 3_600, NOW + 7_200, "16:00 to 17:00"),
        (NOW + 3_600, NOW + 90_000, "16:00 to 11-10 16:00"),
        (NOW + 3_600, None, "16:00"),
    ],
)
def test_an_expected_start_is_an_interval(
    earliest: int | None, latest: int | None, shown: str
) -> None:
    assert interval(earliest, latest, NOW) == shown


def test_what_does_not_wait_has_no_fields() -> None:
    assert queue_fields(None, NOW) == []
    assert queue_fields({}, NOW) == []
    paused = queue_fields({"reason": "Paused.", "position": None, "eta": None}, NOW)
    assert [value for _, value in paused if value] == ["Paused."]


def test_a_refusal_says_how_much_more_of_a_budget_would_admit_the_job() -> None:
    refusal = {"message": "Too dear.", "more_micro": 1_500_000, "more_gpu_ms": None}
    assert refusal_line(refusal) == "Too dear. 1.50 more would admit it."
    refusal = {"message": "Too long.", "more_micro": None, "more_gpu_ms": 5_400_000}
    assert refusal_line(refusal) == "Too long. 1.50 GPU-hours more would admit it."


def test_a_wait_for_a_cluster_says_since_when() -> None:
    waits = {"reason": "The cluster has not admitted it yet.", "since": NOW - 3_600}
    assert ("since", "14:00 UTC") in queue_fields(waits, NOW)
