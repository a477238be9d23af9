"""Waits in words: the interval in which something is expected to start."""

import pytest

from tunery.cli._queue_view import interval, queue_fields

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
