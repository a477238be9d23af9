"""How the story looks: chapters, lines, a loss line that moves where the terminal can."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tunery.cli.demo.claims import Told

BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
PLAIN_EVERY = 5  # steps between two lines where nothing can be drawn over


class View:
    def __init__(self, *, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self._began = time.monotonic()
        self._chapter = 0
        self._drawn: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self.console.print(
            f"\n[bold]{self._chapter}. {title}[/bold]  [dim]{self.seconds:.0f} s[/dim]"
        )

    def line(self, text: str) -> None:
        self.console.print(f"   {text}", soft_wrap=True)

    def claim(self, holds: bool, text: str) -> None:
        mark = "[green]✓[/green]" if holds else "[red]✗[/red]"
        self.console.print(f"   {mark} {text}", soft_wrap=True)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(*titles, box=None, header_style="dim", padding=(0, 2, 0, 3))
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def training(self, node: str, progress: Mapping[str, Any], losses: Sequence[float]) -> None:
        """One line: node, step, loss, and the losses so far as a curve."""
        step, total = progress["step"], progress["total_steps"]
        here = (step, total)
        if here == self._drawn or not losses:
            return
        self._drawn = here
        text = f"   {node}  step {step:>3}/{total}  loss {losses[-1]:.3f}  {spark(losses)}"
        if self.console.is_terminal:
            self.console.print(text, end="\r" if step < total else "\n")
        elif step % PLAIN_EVERY == 0 or step == total:
            self.console.print(text, soft_wrap=True)

    def verdict(self, told: Told) -> None:
        if told.trouble is not None:
            self.console.print(f"\n[red]The story broke off:[/red] {told.trouble}", soft_wrap=True)
        broken = [name for name, holds in told.held.items() if not holds]
        if told.all_held:
            count = len(told.held)
            self.console.print(
                f"\n[bold green]All {count} claims held[/bold green] in {self.seconds:.0f} s."
            )
        else:
            self.console.print(f"\n[bold red]Broken:[/bold red] {', '.join(broken)}")


def spark(values: Sequence[float]) -> str:
    """The values as a row of bars, oldest first, at most SPARK_WIDTH of them."""
    shown = (
        [values[index * len(values) // SPARK_WIDTH] for index in range(SPARK_WIDTH)]
        if len(values) > SPARK_WIDTH
        else list(values)
    )
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in shown)
