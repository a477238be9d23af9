"""Tables of things that people named."""

import pytest

from tunery.cli._api import show, show_one
from tunery.cli._watch import _line

NAME = "rows [/red] [bold].jsonl"


def test_names_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show([NAME], False, ("name",), lambda name: (name,))
    show_one({}, False, [("file", NAME), ("none", None)])
    listed, shown = [line for line in capsys.readouterr().out.splitlines() if "jsonl" in line]
    assert listed.strip() == NAME
    assert shown.split() == ["file", *NAME.split()]


def test_a_message_with_brackets_is_shown_as_it_is() -> None:
    event = {"level": "error", "created_at": 0, "message": f"cannot read {NAME}"}
    assert _line(event).plain.endswith(f"cannot read {NAME}")
