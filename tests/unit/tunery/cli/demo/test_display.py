import io

from rich.console import Console

from tunery.cli.demo.claims import Told
from tunery.cli.demo.display import View


def view(*, terminal: bool) -> tuple[View, io.StringIO]:
    written = io.StringIO()
    made = View(to_stderr=False)
    made.console = Console(file=written, force_terminal=terminal, width=120, color_system=None)
    return made, written


def test_texts_of_others_are_shown_as_they_are() -> None:
    made, written = view(terminal=False)
    made.answers("Say [/INST].", "[bold]no", "[/] Ahoy")
    made.claim(False, "[Errno 2] [/oops]")
    made.table(("a",), [("[/red]",)])
    made.verdict(Told(trouble="Late: [/x]"))
    for text in (
        "Say [/INST].",
        "[bold]no",
        "[/] Ahoy",
        "[Errno 2] [/oops]",
        "[/red]",
        "Late: [/x]",
    ):
        assert text in written.getvalue()


def test_what_follows_the_loss_line_begins_below_it() -> None:
    made, written = view(terminal=True)
    for step, losses in ((1, [2.0]), (2, [2.0, 1.0])):
        made.training("node A", {"step": step, "total_steps": 9}, losses)
    made.claim(True, "short")
    drawn = written.getvalue().split("\r")
    assert drawn[-1] == "\n   ✓ short\n"
    assert drawn[-2].startswith("   node A  step   2/9  loss 1.000")
