import msgspec
import pytest

from schemas.telemetry import LogLine, Progress
from services.gateway.views.telemetry import changes_of
from tests.unit.tunery.runtime.journal.memory_fixture import GARBAGE
from tunery.runtime.bus.abstract import Record


@pytest.mark.parametrize("value", GARBAGE)
def test_unreadable_telemetry_is_skipped_and_logged_with_its_offset(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert changes_of(Record(3, 7, 1, b"ftjob-1", value)) == ()
    (said,) = caplog.records
    assert said.getMessage() == "telemetry.record_skipped"
    assert said.__dict__["fields"]["position"] == "3/7"


def test_a_line_becomes_a_row() -> None:
    line = LogLine(tenant="acme", job_id="ftjob-1", attempt=1, level="info", text="begun")
    (row,) = changes_of(Record(3, 7, 1, b"ftjob-1", msgspec.json.encode(line)))
    assert row.table


def test_first_hour_11_stages_of_the_evaluation_are_shown_in_words() -> None:
    """The text was `items_base: 9 %`."""
    message = Progress(
        tenant="acme", job_id="ftjob-1", attempt=2, stage="items_base", done_ppm=90_000
    )
    (row,) = changes_of(Record(3, 7, 1, b"ftjob-1", msgspec.json.encode(message)))
    assert row.values["message"] == "evaluation: general questions to the base model, 9 %"
