"""Benchmarks an operator has: files of questions, kept as items under a name.

A benchmark is one file of JSON lines, `NAME.jsonl`: a head with where its items are from, then the
items. Question and answer are found by the names that benchmarks use, or by those that are given.
"""

import csv
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.data.containers.reading import open_rows
from tunery.data.dialects.parsing import parse
from tunery.data.findings.finding import Finding, Note
from tunery.data.screening.contamination import Item

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SUFFIX: Final = ".jsonl"
QUESTIONS: Final = (
    *("question", "question_stem", "query", "ctx", "prompt", "sentence", "problem", "goal"),
    *("instruction", "input", "text"),
)
ANSWERS: Final = (
    *("answer", "best_answer", "canonical_solution", "solution", "completion", "output", "target"),
    *("gold", "label", "answerkey", "answer_key", "correct"),
)
CHOICES: Final = ("choices", "endings", "options")
LEAD: Final = re.compile(r"\s*(?:question|q)\s*:\s*", re.IGNORECASE)


class BenchmarkUnusable(Exception):
    """A benchmark cannot be read. The message names file and row, and what to do."""


class Source(Struct, frozen=True):
    """A file that items came from."""

    file: str
    sha256: str
    items: int


class Head(Struct, frozen=True):
    """The first line of a stored benchmark."""

    name: str
    sources: tuple[Source, ...]

    @property
    def items(self) -> int:
        return sum(source.items for source in self.sources)


def add(
    folder: Path,
    name: str,
    files: Sequence[Path],
    *,
    question: str | None = None,
    answer: str | None = None,
) -> Head:
    """Read files and keep their items as benchmark `name` in `folder`; an older one is replaced.

    `question`, `answer`: keys that rows use, where the usual ones do not fit. Raises
    `BenchmarkUnusable` and `OSError`.
    """
    if not NAME.fullmatch(name):
        raise BenchmarkUnusable(
            f"{name!r} is no name for a benchmark: use a-z, 0-9, '.', '_' and '-', at most 64"
        )
    items: list[Item] = []
    sources: list[Source] = []
    for path in files:
        found = _items(path, name, question, answer)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        sources.append(Source(path.name, digest, len(found)))
        items += found
    head = Head(name, tuple(sources))
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    part.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (head, *items)))
    part.replace(folder / f"{name}{SUFFIX}")
    return head


def heads(folder: Path) -> list[Head]:
    """The benchmarks of a folder, by name. Raises `BenchmarkUnusable`."""
    return [_head(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def load(folder: Path, names: Sequence[str] | None = None) -> list[Item]:
    """Items of the named benchmarks, or of all. Raises `BenchmarkUnusable`."""
    known = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    for name in names or ():
        if name not in known:
            there = ", ".join(known) or "none; add one with `tunery benchmarks add NAME FILE`"
            raise BenchmarkUnusable(f"there is no benchmark {name!r} in {folder}: {there}")
    items: list[Item] = []
    for name in known if names is None else names:
        with known[name].open("rb") as stream:
            next(stream, None)
            try:
                items += [msgspec.json.decode(line, type=Item) for line in stream]
            except msgspec.MsgspecError as error:
                raise _damaged(known[name], error) from error
    return items


def remove(folder: Path, name: str) -> None:
    """Forget a benchmark. Raises `BenchmarkUnusable` when there is none."""
    path = folder / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name) or not path.is_file():
        raise BenchmarkUnusable(f"there is no benchmark {name!r} in {folder}")
    path.unlink()


def item_of(
    row: Mapping[str, Any], question: str | None = None, answer: str | None = None
) -> tuple[str, str] | None:
    """Question and answer of a row, texts; the answer is empty when there is none."""
    named = {str(key).strip().lower().replace(" ", "_"): value for key, value in row.items()}
    asked = _text(row.get(question)) if question else _first(named, QUESTIONS)
    if not asked.strip():
        return None
    given = [answer.lower()] if answer else [key for key in ANSWERS if key in named]
    choices, labels = _choices(named)
    for key in given:
        picked = _picked(named.get(key), choices, labels)
        if picked.strip():
            return LEAD.sub("", asked, count=1), picked
    return LEAD.sub("", asked, count=1), ""


def _items(path: Path, name: str, question: str | None, answer: str | None) -> list[Item]:
    items: list[Item] = []
    for number, row in _rows(path):
        found = item_of(row, question, answer)
        if found is None:
            keys = ", ".join(map(str, row))
            raise BenchmarkUnusable(
                f"{path.name}, row {number}: no question in the keys {keys}; "
                "name its key with --question"
            )
        place = f"{path.name}:{number}"
        items.append(Item(benchmark=name, place=place, question=found[0], answer=found[1]))
    if not items:
        raise BenchmarkUnusable(f"{path.name} has no rows")
    return items


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Rows with their numbers. CSV, told by its name, may have any columns."""
    table = re.search(r"\.([ct])sv(\.gz)?$", path.name)
    if table is not None:
        opener = gzip.open if table[2] else open
        delimiter = "," if table[1] == "c" else "\t"
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            yield from enumerate(csv.DictReader(text, delimiter=delimiter), 1)
        return
    with open_rows(path) as rows:
        for row in rows:
            if isinstance(row, Finding):
                if row.code == "blank_line":
                    continue
                raise BenchmarkUnusable(f"{path.name}, row {row.row}: {row.message}. {row.hint}")
            value = parse(row.content) if isinstance(row.content, bytes) else row.content
            if isinstance(value, Note):
                finding = value.at(row.number, row.line)
                raise BenchmarkUnusable(f"{path.name}, row {row.number}: {finding.message}")
            yield row.number, value


def _first(named: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((text for key in keys if (text := _text(named.get(key))).strip()), "")


def _choices(named: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Texts and labels of the choices."""
    for key in CHOICES:
        match named.get(key):
            case list() as texts:
                return [_text(text) for text in texts], []
            case {"text": list() as texts, **rest}:
                labels = rest.get("label")
                return [_text(text) for text in texts], labels if isinstance(labels, list) else []
            case _:
                continue
    numbered = [named[key] for key in ("option1", "option2", "option3") if key in named]
    return [_text(text) for text in numbered], [str(n + 1) for n in range(len(numbered))]


def _picked(answer: object, choices: Sequence[str], labels: Sequence[object]) -> str:
    """The answer as text: one of the choices by label, number or letter, else what it says."""
    if not choices:
        return _text(answer)
    if answer in labels:
        return choices[labels.index(answer)]
    text = _text(answer).strip()
    if text.isdecimal() and int(text) < len(choices):
        return choices[int(text)]
    if len(text) == 1 and 0 <= ord(text.upper()) - ord("A") < len(choices):
        return choices[ord(text.upper()) - ord("A")]
    return text


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case int() | float():
            return str(value)
        case _:
            return ""


def _head(path: Path) -> Head:
    try:
        with path.open("rb") as stream:
            return msgspec.json.decode(stream.readline(), type=Head)
    except msgspec.MsgspecError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> BenchmarkUnusable:
    return BenchmarkUnusable(f"{path} is damaged ({error}); add the benchmark again")


def folder_in(data_dir: Path) -> Path:
    """Where an installation keeps its benchmarks."""
    return data_dir / "benchmarks"
