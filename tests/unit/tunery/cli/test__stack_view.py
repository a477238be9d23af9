"""View of a stack: a row for each part in order, and a line for each notable event."""

import io

import pytest
from rich.console import Console

from tunery.cli._stack_view import EventPrinter, duration, live
from tunery.local.events import Changed, Notice, Phase
from tunery.local.state import ChildState, StackState, now_ms


def console() -> Console:
    return Console(file=io.StringIO(), width=120, color_system=None)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def child(name: str, phase: Phase, **fields: object) -> ChildState:
    facts = {"pid": None, "restarts": 0, "address": "", "detail": "", "since_ms": now_ms()}
    return ChildState(name=name, phase=phase, **(facts | fields))  # type: ignore[arg-type]  # checked where they are read


@pytest.mark.parametrize(
    ("elapsed_ms", "shown"),
    [
        (-5, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_599_999, "59 min"),
        (3_600_000, "1 h"),
        (48 * 3_600_000 - 1, "47 h"),
        (48 * 3_600_000, "2 d"),
    ],
)
def test_durations_have_one_unit(elapsed_ms: int, shown: str) -> None:
    assert duration(elapsed_ms) == shown


def test_servers_come_first_and_every_part_has_its_row() -> None:
    state = StackState(notes=["port 9092 is taken"])
    for each in (
        child("gateway", Phase.RESTARTING, restarts=3, detail="killed by SIGKILL [9]"),
        child("kafka", Phase.READY, address="127.0.0.1:9092"),
        child("postgres", Phase.STARTING, pid=42),
    ):
        state.children[each.name] = each
    shown = console()
    shown.print(live(state))
    header, kafka, postgres, gateway, note = text_of(shown).splitlines()
    assert header.split() == ["part", "state", "where", "for", "restarts"]
    assert kafka.split()[:4] == ["✓", "kafka", "ready", "127.0.0.1:9092"]
    assert postgres.split()[:5] == ["…", "postgres", "starting", "pid", "42"]
    assert gateway.split()[:3] == ["↻", "gateway", "restarting"]
    assert gateway.rstrip().endswith("3         killed by SIGKILL [9]")
    assert note == "  port 9092 is taken"


def test_events_are_lines_and_phases_in_between_are_not() -> None:
    shown = console()
    printer = EventPrinter(shown)
    for event in (
        Changed("kafka", Phase.STARTING),
        Changed("kafka", Phase.READY, address="127.0.0.1:9092"),
        Changed("kafka", Phase.FAILED, address="127.0.0.1:9092", detail="exit [1]"),
        Notice("[bold]careful[/bold]"),
    ):
        printer.print_event(event)
    lines = [line.split(" s  ", 1)[1].rstrip() for line in text_of(shown).splitlines()]
    assert [line.split() for line in lines] == [
        ["✓", "kafka", "ready", "127.0.0.1:9092"],
        ["✗", "kafka", "failed", "exit", "[1]"],
        ["[bold]careful[/bold]"],
    ]
