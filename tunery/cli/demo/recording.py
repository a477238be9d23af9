"""Writes a finished demo as a page of documentation: the transcript, and pictures of it.

`tunery demo --record docs` makes `docs/demo.md`, `docs/demo-light.svg` and `docs/demo-dark.svg`.
"""

import io
import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme

from tunery.cli.demo.display import Display

PAGE: Final = "demo.md"
WIDTH: Final = 110
PICTURED: Final = (6, 7, 8, 13, 15)  # steps: training and the kill, the resume, gate, bill, replay
THEMES: Final[dict[str, TerminalTheme]] = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}
#: rich names fonts on a public server; a picture of ours loads nothing
FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
HEAD: Final = """\
# A run of the demo

<!-- Made by `tunery demo --record docs`. Do not edit. -->

This is what `make demo` prints: the transcript of one real run on {date}, on a machine with
{machine}. Of the loss lines, every eighth step is shown. Each line with a check mark is a claim
that the demo has checked; a claim that does not hold makes the command fail.

```text
{transcript}
```
"""


def write(display: Display, folder: Path) -> list[Path]:
    """Write the page and the pictures into `folder`; returns their paths."""
    page = folder / PAGE
    everything = [item for step in display.recorded for item in step]
    page.write_text(
        HEAD.format(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            machine=machine(),
            transcript=plain(everything),
        ),
        encoding="utf-8",
    )
    pictured = [
        item
        for number, step in enumerate(display.recorded)
        for item in (step if number in PICTURED else ())
    ]
    pictures = [folder / f"demo-{name}.svg" for name in THEMES]
    for path, theme in zip(pictures, THEMES.values(), strict=True):
        path.write_text(svg(pictured, theme), encoding="utf-8")
    return [page, *pictures]


def machine() -> str:
    """The machine in words that a reader can compare: cores, memory, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}"


def plain(items: Sequence[RenderableType]) -> str:
    """The items as a terminal without colours shows them."""
    written = io.StringIO()
    console = Console(file=written, width=WIDTH, color_system=None)
    for item in items:
        console.print(item, soft_wrap=True)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()).strip("\n")


def svg(items: Sequence[RenderableType], theme: TerminalTheme) -> str:
    """The items as a terminal with this theme shows them."""
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    for item in items:
        console.print(item)
    picture = console.export_svg(title="tunery demo", theme=theme, unique_id="tunery-demo")
    return FONT_FACE.sub("", picture)
