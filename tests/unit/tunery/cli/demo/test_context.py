"""Context of the demo's steps: claims are recorded and shown, and the file has a default."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.tunery.cli.demo.test_display import display
from tunery.cli.demo.claims import DemoResult
from tunery.cli.demo.context import EXAMPLES, DemoContext
from tunery.cli.demo.receiver import Receiver


def context(api: Any = None, data: Path | None = None) -> DemoContext:
    shown, _ = display(terminal=False)
    return DemoContext(
        stack=SimpleNamespace(),  # type: ignore[arg-type]  # these steps ask it nothing
        api=api,
        display=shown,
        result=DemoResult(),
        receiver=Receiver(port=7),
        data=data,
    )


def test_the_training_file_is_the_example_unless_the_user_has_one() -> None:
    assert context().training_file == EXAMPLES / "lighthouse.jsonl"
    assert context().training_file.is_file()
    assert context(data=Path("mine.jsonl")).training_file == Path("mine.jsonl")


@pytest.mark.parametrize("holds", [True, False])
def test_a_claim_is_recorded_and_shown(holds: bool) -> None:
    shown, written = display(terminal=False)
    demo = context()
    demo.display = shown
    assert demo.check("loss_fell", holds, "the loss fell") is holds
    assert demo.result.held["loss_fell"] is holds
    assert "the loss fell" in written.getvalue()


def test_a_claim_that_the_demo_does_not_make_is_an_error() -> None:
    with pytest.raises(KeyError, match="is not a claim of the demo"):
        context().check("it_is_fast", True, "fast")
