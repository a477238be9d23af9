"""How the story looks: chapters, lines, a loss line that moves where the terminal can."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tunery.cli._watch import sparkline
from tunery.cli.demo.claims import Told

SPARK_WIDTH = 40
PLAIN_EVERY = 5  # steps between two lines where nothing can be drawn over


class View:
    def __init__(self, *, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self._began = time.monotonic()
        self._chapter = 0
        self._drawn: tuple[int, int] | None = None
        self._is_open = False  # the cursor stands on the loss line

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def chapter(self, title: str) -> None:
        self._chapter += 1
        seconds = f"{self.seconds:.0f} s"
        self._print(f"\n{self._chapter}. {title}", ("bold", 0, None), rest=f"  {seconds}")

    def line(self, text: str) -> None:
        self._print(f"   {text}")

    def answers(self, prompt: str, before: str, after: str) -> None:
        """What the base model and the adapter say to a prompt."""
        self._print(f"   {prompt}", ("bold", 3, None))
        self._print(f"     before  {before}", ("dim", 13, None))
        self._print(f"     after   {after}")

    def claim(self, holds: bool, text: str) -> None:
        mark, colour = ("✓", "green") if holds else ("✗", "red")
        self._print(f"   {mark} {text}", (colour, 3, 4))

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(*titles, box=None, header_style="dim", padding=(0, 2, 0, 3))
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._close()
        self.console.print(table)

    def _print(
        self, text: str, style: tuple[str, int, int | None] | None = None, rest: str = ""
    ) -> None:
        """Texts of models and of errors may hold brackets: they are shown, never read as markup."""
        self._close()
        shown = Text(text)
        if style is not None:
            shown.stylize(*style)
        self.console.print(shown.append(rest, style="dim"), soft_wrap=True)

    def _close(self) -> None:
        """Leave the loss line as it stands, and go on below it."""
        if self._is_open:
            self._is_open = False
            self.console.print()

    def training(self, node: str, progress: Mapping[str, Any], losses: Sequence[float]) -> None:
        """One line: node, step, loss, and the losses so far as a curve."""
        step, total = progress["step"], progress["total_steps"]
        here = (step, total)
        if here == self._drawn or not losses:
            return
        self._drawn = here
        curve = sparkline(losses, SPARK_WIDTH)
        text = f"   {node}  step {step:>3}/{total}  loss {losses[-1]:.3f}  {curve}"
        if self.console.is_terminal:
            self.console.print(text, end="\r")
            self._is_open = True
        elif step % PLAIN_EVERY == 0 or step == total:
            self.console.print(text, soft_wrap=True)

    def verdict(self, told: Told) -> None:
        self._close()
        if told.trouble is not None:
            self._print(f"\nThe story broke off: {told.trouble}", ("red", 0, 22))
        broken = [name for name, holds in told.held.items() if not holds]
        if told.all_held:
            count = len(told.held)
            self.console.print(
                f"\n[bold green]All {count} claims held[/bold green] in {self.seconds:.0f} s."
            )
        else:
            self.console.print(f"\n[bold red]Broken:[/bold red] {', '.join(broken)}")
