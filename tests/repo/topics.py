"""The page that lists every topic, made from the catalogue: `python -m tests.repo.topics`."""

from pathlib import Path
from typing import Final

from schemas.topics import FOREVER, PARTITIONS, TOPICS, Topic
from schemas.units import DAY_MS, HOUR_MS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "topics.md"
HEAD: Final = f"""\
# Topics

Made from `schemas/topics.py` by `python -m tests.repo.topics`; a test compares the two.
Every topic has {PARTITIONS} partitions.

| topic | key | kept | written by | read by |
|---|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(f"{_row(topic)}\n" for topic in TOPICS)


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
