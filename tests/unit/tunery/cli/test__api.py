"""Tables of things that people named."""

import pytest

from tunery.cli._api import show, show_one

NAME = "rows [/red] [bold].jsonl"


def test_names_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show([NAME], False, ("name",), lambda name: (name,))
    show_one({}, False, [("file", NAME), ("none", None)])
    listed, shown = [line for line in capsys.readouterr().out.splitlines() if "jsonl" in line]
    assert listed.strip() == NAME
    assert shown.split() == ["file", *NAME.split()]
