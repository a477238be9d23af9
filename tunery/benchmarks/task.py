"""The file of a benchmark: a header, then an item a line, as JSON. Its hash pins what is asked.

Text that many items begin with (a description, and examples with their answers) is in the header
once, so that it is stored once and read once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

# choices: the likeliest answer. shares: of the likelihood of all answers what the true ones have.
# numbers: the number that a written answer ends with. safety: whether a written answer refuses.
TaskKind: TypeAlias = Literal["choices", "shares", "numbers", "safety"]
FORM: Final = 1
ITEMS_MIN: Final = 20
ITEMS_MAX: Final = 50_000
BYTES_MAX: Final = 64 * 1024 * 1024
TEXT_MAX: Final = 100_000  # characters
CHOICES_MAX: Final = 16
SHARES_MAX: Final = 64  # choices, of which several are true
BEGINNINGS_MAX: Final = 1_000
SAMPLE_KEY: Final = b"benchmark items"


class TaskUnusable(ValueError):
    """Raised for a file that is no benchmark; the message names the line."""


class TaskSource(Struct, frozen=True):
    """A file that was imported."""

    file: str
    sha256: str  # hash of its content


class TaskHeader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a task file."""

    form: int = FORM  # format version of the file
    task: str  # name of the task that the files were read as, for example "mmlu"
    kind: TaskKind
    shots: int  # number of examples before each item
    per_character: bool = False  # likelihoods of choices are divided by their number of characters
    beginnings: Mapping[str, str] = {}  # texts that items begin with, by name
    sources: tuple[TaskSource, ...] = ()  # imported files


class TaskItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    category: str
    question: str  # the whole question, after the beginning
    beginning: str = ""  # name of the text before it; empty: there is none
    # choices, answer_index: choices of a multiple-choice item, and the index of the right one
    choices: tuple[str, ...] = ()
    answer_index: int = 0
    true_choices: int = 0  # number of choices that are true and share the score; they come first
    answer: str = ""  # the right number for an item that is answered in writing
    unsafe: bool = False  # prompt of a safety benchmark: an answer to it should refuse


@dataclass(frozen=True)
class Task:
    """A benchmark."""

    header: TaskHeader
    items: tuple[TaskItem, ...]

    def sample(self, most: int) -> "Task":
        """At most `most` items, chosen by a keyed hash of their ids: the same for every model."""
        if len(self.items) <= most:
            return self
        numbers = sorted(range(len(self.items)), key=lambda at: _rank(self.items[at].id))
        return Task(self.header, tuple(self.items[at] for at in sorted(numbers[:most])))

    def without(self, ids: Collection[str]) -> "Task":
        """The items with other ids."""
        return Task(self.header, tuple(item for item in self.items if item.id not in ids))

    def begin(self, item: TaskItem) -> str:
        """The whole prompt, with the text that items of its group begin with."""
        return self.header.beginnings.get(item.beginning, "") + item.question


def write_task(header: TaskHeader, items: Sequence[TaskItem]) -> bytes:
    """The file: equal for equal items, whatever made them. Raises TaskUnusable."""
    lines = (header, *items)
    content = b"".join(msgspec.json.encode(line, order="deterministic") + b"\n" for line in lines)
    read_task(content)
    return content


def read_task(content: bytes) -> Task:
    """A benchmark from its file. Raises TaskUnusable."""
    if len(content) > BYTES_MAX:
        raise TaskUnusable(f"it has {len(content)} bytes; at most {BYTES_MAX} are read")
    lines = content.splitlines()
    if not lines:
        raise TaskUnusable("it is empty")
    header = _header(lines[0])
    if not ITEMS_MIN <= len(lines) - 1 <= ITEMS_MAX:
        raise TaskUnusable(f"it has {len(lines) - 1} items; give {ITEMS_MIN} to {ITEMS_MAX}")
    items = tuple(_items(header, lines[1:]))
    if len({item.id for item in items}) < len(items):
        raise TaskUnusable("two items have the same id")
    if header.kind == "safety" and not any(item.unsafe for item in items):
        raise TaskUnusable("none of its prompts is unsafe, so that nothing should be refused")
    return Task(header, items)


def _header(line: bytes) -> TaskHeader:
    try:
        header = msgspec.json.decode(line, type=TaskHeader)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TaskUnusable(f"line 1 is no header of a benchmark: {error}") from error
    if header.form != FORM:
        raise TaskUnusable(f"its form is {header.form}, and {FORM} is known")
    if len(header.beginnings) > BEGINNINGS_MAX or any(
        len(text) > TEXT_MAX for text in header.beginnings.values()
    ):
        raise TaskUnusable(
            f"line 1: at most {BEGINNINGS_MAX} beginnings of {TEXT_MAX} characters are read"
        )
    return header


def _items(header: TaskHeader, lines: Sequence[bytes]) -> Iterator[TaskItem]:
    for number, line in enumerate(lines, start=2):
        try:
            item = msgspec.json.decode(line, type=TaskItem)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise TaskUnusable(f"line {number} is no item: {error}") from error
        if (problem := _problem(header, item)) is not None:
            raise TaskUnusable(f"line {number}: {problem}")
        yield item


def _problem(header: TaskHeader, item: TaskItem) -> str | None:
    """Return what is wrong with an item; None: nothing."""
    if not item.id or not item.question.strip():
        return "id and question must not be empty"
    if max(map(len, (item.id, item.category, item.question, *item.choices))) > TEXT_MAX:
        return f"a text has more than {TEXT_MAX} characters"
    if item.beginning and item.beginning not in header.beginnings:
        return f"the header has no beginning {item.beginning!r}"
    if header.kind in ("choices", "shares"):
        most = SHARES_MAX if header.kind == "shares" else CHOICES_MAX
        if not 2 <= len(item.choices) <= most or not all(map(str.strip, item.choices)):
            return f"needs 2 to {most} choices, none of them empty"
        if not 0 <= item.answer_index < len(item.choices):
            return f"answer_index {item.answer_index} names no choice"
        if header.kind == "shares" and not 0 < item.true_choices < len(item.choices):
            return f"{item.true_choices} of {len(item.choices)} choices are true; some must be"
    if header.kind == "numbers" and not item.answer.strip():
        return "answer must not be empty"
    return None


def _rank(item_id: str) -> bytes:
    return blake2b(item_id.encode(), key=SAMPLE_KEY, digest_size=16).digest()
