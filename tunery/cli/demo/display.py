"""How the demo looks in a terminal: numbered steps, lines, and a loss curve that is redrawn."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tunery.cli._watch import sparkline
from tunery.cli.demo.claims import DemoResult

SPARK_WIDTH = 40
PLAIN_EVERY = 5  # steps between two loss lines where nothing can be redrawn
RECORDED_EVERY = 8  # steps between two loss lines of a recording


class Display:
    """Prints the demo and keeps what it printed, step by step, for a recording.

    recorded: what each step printed; index 0 holds what came before the first step
    """

    def __init__(self, *, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self.recorded: list[list[RenderableType]] = [[]]
        self._started = time.monotonic()
        self._drawn: tuple[int, int] | None = None
        self._on_loss_line = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def step(self, title: str) -> None:
        """Begin the next numbered step."""
        self.recorded.append([])
        text = f"\n{len(self.recorded) - 1}. {title}"
        self._print(text, ("bold", 0, None), rest=f"  {self.seconds:.0f} s")

    def line(self, text: str) -> None:
        self._print(f"   {text}")

    def answers(self, prompt: str, before: str, after: str) -> None:
        """Print the answers of the base model and of the adapter to a prompt."""
        self._print(f"   {prompt}", ("bold", 3, None))
        self._print(f"     before  {before}", ("dim", 13, None))
        self._print(f"     after   {after}")

    def claim(self, holds: bool, text: str) -> None:
        mark, colour = ("✓", "green") if holds else ("✗", "red")
        self._print(f"   {mark} {text}", (colour, 3, 4))

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """`rows` under `titles`; cells are shown as they are, never read as markup."""
        table = Table(*titles, box=None, header_style="dim", padding=(0, 2, 0, 3))
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._leave_loss_line()
        self.recorded[-1].append(table)
        self.console.print(table)

    def training(self, node: str, progress: Mapping[str, Any], losses: Sequence[float]) -> None:
        """One line: node, step, loss, and the losses so far as a curve."""
        step, total = progress["step"], progress["total_steps"]
        if (step, total) == self._drawn or not losses:
            return
        self._drawn = (step, total)
        curve = sparkline(losses, SPARK_WIDTH)
        text = f"   {node}  step {step:>3}/{total}  loss {losses[-1]:.3f}  {curve}"
        if step % RECORDED_EVERY == 0 or step == total:
            self.recorded[-1].append(Text(text))
        if self.console.is_terminal:
            self.console.print(text, end="\r")
            self._on_loss_line = True
        elif step % PLAIN_EVERY == 0 or step == total:
            self.console.print(text, soft_wrap=True)

    def summary(self, result: DemoResult) -> None:
        """The last lines: whether all claims held, which are broken, why the demo stopped."""
        if result.failure is not None:
            self._print(f"\nThe demo stopped early: {result.failure}", ("red", 0, 23))
        if result.all_held:
            text = f"\nAll {len(result.held)} claims held"
            self._print(text, ("bold green", 0, None), rest=f" in {self.seconds:.0f} s.")
        else:
            broken = [name for name, holds in result.held.items() if not holds]
            self._print(f"\nBroken: {', '.join(broken)}", ("bold red", 0, 8))

    def _print(
        self, text: str, style: tuple[str, int, int | None] | None = None, rest: str = ""
    ) -> None:
        """Text of models and errors may hold brackets: it is shown, never read as markup."""
        self._leave_loss_line()
        styled = Text(text)
        if style is not None:
            styled.stylize(*style)
        styled.append(rest, style="dim")
        self.recorded[-1].append(styled)
        self.console.print(styled, soft_wrap=True)

    def _leave_loss_line(self) -> None:
        """Keep the loss line as it stands and go on below it."""
        if self._on_loss_line:
            self._on_loss_line = False
            self.console.print()
