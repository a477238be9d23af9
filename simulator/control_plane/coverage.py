"""Which kinds of commands and events runs have met, and why the others are not played.

What a run never meets its audits cannot judge: two ways to stand still for ever lay among the kinds
that no run had.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from schemas.topics import STREAMS

OLDER: Final = "written by older releases alone"
#: Kinds that no run meets, by stream and name, each with the reason.
UNPLAYED: Final[Mapping[str, str]] = {
    "job command RecordWait": OLDER,
    "job event WaitNoted": OLDER,
    "pool event WaitExplained": OLDER,
    "session event Repeated": "a command of a session is known by its number, and its sender sends "
    "no key of repetition",
    **dict.fromkeys(
        ("pool event ObservationsDeferred", "pool event PlanningDeferred"),
        "only pools of hundreds of nodes or placements fill a record",
    ),
}


def kind_of(stream: str, what: str, message: Any) -> str:
    """Name of the kind of a message; `what`: "command" or "event"."""
    return f"{stream} {what} {type(message).__name__}"


def vocabulary() -> tuple[str, ...]:
    """All kinds that there are, from the unions of the schemas."""
    return tuple(
        f"{stream.name} {what} {message.__name__}"
        for stream in STREAMS.values()
        for what, union in (("command", stream.command), ("event", stream.event))
        for message in sorted(get_args(union), key=lambda message: str(message.__name__))
    )


def reason_unplayed(kind: str) -> str | None:
    """Return why no run meets this kind; None: runs must meet it."""
    return UNPLAYED.get(kind)


def unmet(kinds: Mapping[str, int]) -> list[str]:
    """Return kinds that runs must meet, and that these did not."""
    return [kind for kind in vocabulary() if not kinds.get(kind) and reason_unplayed(kind) is None]


def wrongly_excused(kinds: Iterable[str]) -> list[str]:
    """Kinds that these runs have met although they are said not to be played."""
    return sorted(kind for kind in kinds if reason_unplayed(kind) is not None)


def table(kinds: Mapping[str, int]) -> Iterator[str]:
    """How often each kind was met, or why it was not; one line each."""
    for kind in vocabulary():
        count = kinds.get(kind, 0)
        why = "" if count else f"  {reason_unplayed(kind) or 'NEVER MET'}"
        yield f"{count:9} {kind}{why}"
