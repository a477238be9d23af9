import io

from rich.console import Console

from tunery.cli.demo.claims import DemoResult
from tunery.cli.demo.display import Display


def display(*, terminal: bool) -> tuple[Display, io.StringIO]:
    """A display that writes into the second value."""
    written = io.StringIO()
    shown = Display(to_stderr=False)
    shown.console = Console(file=written, force_terminal=terminal, width=120, color_system=None)
    return shown, written


def test_text_with_brackets_is_shown_as_it_is() -> None:
    shown, written = display(terminal=False)
    shown.answers("Say [/INST].", "[bold]no", "[/] Ahoy")
    shown.claim(False, "[Errno 2] [/oops]")
    shown.table(("a",), [("[/red]",)])
    shown.summary(DemoResult(failure="DeadlineExceeded: [/x]"))
    for text in (
        "Say [/INST].",
        "[bold]no",
        "[/] Ahoy",
        "[Errno 2] [/oops]",
        "[/red]",
        "DeadlineExceeded: [/x]",
    ):
        assert text in written.getvalue()


def test_lines_after_the_loss_line_begin_below_it() -> None:
    shown, written = display(terminal=True)
    for step, losses in ((1, [2.0]), (2, [2.0, 1.0])):
        shown.training("node A", {"step": step, "total_steps": 9}, losses)
    shown.claim(True, "short")
    drawn = written.getvalue().split("\r")
    assert drawn[-1] == "\n   ✓ short\n"
    assert drawn[-2].startswith("   node A  step   2/9  loss 1.000")
