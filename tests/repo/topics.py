"""The page of topics, with the context map: `python -m tests.repo.topics`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

from schemas.streams import FOREVER, PARTITIONS, Stream, Topic
from schemas.topics import STREAMS, TOPICS
from schemas.units import DAY_MS, HOUR_MS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "topics.md"
HEAD: Final = f"""\
# Topics

Made from `schemas/topics.py` and `schemas/senders.py` by `python -m tests.repo.topics`; a test
compares them.
Every topic has {PARTITIONS} partitions.

| topic | key | kept | written by | read by |
|---|---|---|---|---|
"""
MAP: Final = """
## Context map

Which service sends commands to which stream (solid), and which service reads its events (dotted).
The owner of a stream decides its commands, writes its events and reads them too.

"""
COMMANDS: Final = """
### Commands by sender

The owner refuses a command of a sender that is not listed.

| stream | sender | commands |
|---|---|---|
"""
EVENTS: Final = """
### Events by stream

| stream | owner | events |
|---|---|---|
"""


def page() -> str:
    rows = "".join(f"{_row(topic)}\n" for topic in TOPICS)
    diagram = "".join(f"{line}\n" for line in _diagram())
    commands = "".join(
        f"| `{stream.name}` | {permit.sender} | {_names(permit.commands)} |\n"
        for stream in STREAMS.values()
        for permit in stream.permits
    )
    events = "".join(
        f"| `{stream.name}` | {stream.owner} | {_names(_members(stream.event))} |\n"
        for stream in STREAMS.values()
    )
    return f"{HEAD}{rows}{MAP}{diagram}{COMMANDS}{commands}{EVENTS}{events}"


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "flowchart LR"
    for stream in STREAMS.values():
        yield f'  s_{stream.name}[("{stream.name}<br/>owner: {stream.owner}")]'
    for stream in STREAMS.values():
        for sender in stream.senders:
            yield f"  {sender} --> s_{stream.name}"
        yield from _readers(stream)
    yield "```"


def _readers(stream: Stream) -> Iterator[str]:
    for reader in stream.readers:
        if reader != stream.owner:
            yield f"  s_{stream.name} -.-> {reader}"


def _members(union: Any) -> tuple[type[Any], ...]:
    """Return the message types of a union."""
    parts = get_args(union)
    return tuple(kind for part in parts for kind in _members(part)) if parts else (union,)


def _names(kinds: Iterable[type[Any]]) -> str:
    return ", ".join(sorted(f"`{kind.__name__}`" for kind in kinds))


def _row(topic: Topic) -> str:
    names = (", ".join(topic.writers), ", ".join(topic.readers))
    cells = (f"`{topic.name}`", topic.key, _kept(topic), *names)
    return f"| {' | '.join(cells)} |"


def _kept(topic: Topic) -> str:
    if topic.compacted:
        return "the newest of each key"
    if topic.trimmed:
        return "until decided"
    if topic.retention_ms == FOREVER:
        return "for ever"
    days, rest = divmod(topic.retention_ms, DAY_MS)
    return f"{days} d" if days and not rest else f"{topic.retention_ms // HOUR_MS} h"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
