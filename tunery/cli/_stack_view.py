"""How a stack looks in a terminal: a table that is redrawn, or one line per event."""

import time

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tunery.local.events import Changed, Event, Notice, Phase
from tunery.local.stack import EXPORTER, SERVERS, SERVICES
from tunery.local.state import StackState, in_order, now_ms

MARKS = {
    Phase.READY: ("✓", "green"),
    Phase.FAILED: ("✗", "red"),
    Phase.RESTARTING: ("↻", "yellow"),
    Phase.PAUSED: ("‖", "yellow"),
    Phase.STOPPED: ("·", "dim"),
}
IN_PROGRESS = ("…", "cyan")


def table(state: StackState) -> Table:
    """A row per child: mark, name, phase, address, time in the phase, restarts, last message."""
    grid = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("", "part", "state", "where", "for", "restarts", ""):
        grid.add_column(title, no_wrap=title != "", overflow="fold")
    for child in in_order(state, (*SERVERS, *SERVICES, EXPORTER)):
        mark, colour = MARKS.get(child.phase, IN_PROGRESS)
        where = child.address or ("" if child.pid is None else f"pid {child.pid}")
        grid.add_row(
            Text(mark, style=colour),
            child.name,
            Text(child.phase.value, style=colour),
            Text(where, style="dim"),
            duration(now_ms() - child.since_ms),
            str(child.restarts) if child.restarts else "",
            Text(child.detail, style="dim"),
        )
    return grid


def live(state: StackState) -> RenderableType:
    return Group(table(state), *(Text(f"  {note}", style="dim") for note in state.notes))


def duration(elapsed_ms: int) -> str:
    seconds = max(0, elapsed_ms) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86_400} d"


class EventPrinter:
    """Prints events as lines: for pipes and logs, where nothing can be redrawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def print_event(self, event: Event) -> None:
        """Print a line with the seconds since the start; phases in between are left out."""
        at = f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]"
        match event:
            case Notice(text=text):
                self._console.print(f"{at}  {escape(text)}", highlight=False)
            case Changed(phase=Phase.PREPARING | Phase.STARTING | Phase.WAITING):
                return
            case Changed():
                mark, colour = MARKS.get(event.phase, IN_PROGRESS)
                rest = event.detail or (event.address if event.phase is Phase.READY else "")
                self._console.print(
                    f"{at}  [{colour}]{mark}[/{colour}] {event.name:<10} {event.phase.value:<11}"
                    f" [dim]{escape(rest)}[/dim]",
                    highlight=False,
                )
