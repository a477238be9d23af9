"""Following a job: its messages, and the curve of its loss."""

import pytest

from tunery.cli._watch import _line, sparkline


def test_message_with_brackets_is_shown_as_it_is() -> None:
    event = {"level": "error", "created_at": 0, "message": "cannot read rows [/red].jsonl"}
    assert _line(event).plain.endswith("cannot read rows [/red].jsonl")


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 1.0], [float(n) for n in range(500)]])
def test_sparkline_is_never_wider_than_its_width(values: list[float]) -> None:
    assert len(sparkline(values, width=40)) == min(40, len(values))


def test_falling_loss_falls() -> None:
    assert sparkline([8.0, 4.0, 1.0]) == "█▄▁"
