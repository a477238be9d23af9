"""Stores the benchmarks of an operator, so that training rows can be compared with their items.

A benchmark is stored in one file `NAME.jsonl`: a header that names the sources, then one item per
line. The columns of question and answer are recognised by the names that public benchmarks use, or
are named by the operator.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.data.importing.rows import RowUnreadable, read_rows
from tunery.data.screening.contamination import BenchmarkItem
from tunery.platform.blobs.files import file_sha256

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
    """Raised when a benchmark cannot be read or stored.

    The message names the file and the row, and says what to do.
    """


class BenchmarkSource(Struct, frozen=True):
    """A file from which items were read."""

    file: str
    sha256: str  # hash of its content
    items: int  # number of items


class BenchmarkHeader(Struct, frozen=True):
    """The first line of a stored benchmark."""

    name: str
    sources: tuple[BenchmarkSource, ...]

    @property
    def items(self) -> int:
        """The number of items of all sources."""
        return sum(source.items for source in self.sources)


def add(
    folder: Path,
    name: str,
    files: Sequence[Path],
    *,
    question: str | None = None,
    answer: str | None = None,
) -> BenchmarkHeader:
    """Read files and store their items as benchmark `name` in `folder`, replacing an older one.

    question: key of the question; None: one of `QUESTIONS`
    answer: key of the answer; None: one of `ANSWERS`

    Raises `BenchmarkUnusable` when the name is invalid or a file cannot be read as a benchmark, and
    `OSError` when a file cannot be read or written.
    """
    if not NAME.fullmatch(name):
        raise BenchmarkUnusable(
            f"{name!r} is not a valid benchmark name: use at most 64 of a-z, 0-9, '.', '_' and '-'"
        )
    items: list[BenchmarkItem] = []
    sources: list[BenchmarkSource] = []
    for path in files:
        of_file = _items(path, name, question, answer)
        sources.append(BenchmarkSource(path.name, file_sha256(path), len(of_file)))
        items += of_file
    header = BenchmarkHeader(name, tuple(sources))
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    part.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (header, *items)))
    part.replace(folder / f"{name}{SUFFIX}")
    return header


def read_headers(folder: Path) -> list[BenchmarkHeader]:
    """The headers of all benchmarks of a folder, by name.

    Raises `BenchmarkUnusable` when one is damaged.
    """
    return [_read_header(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def load(folder: Path, names: Sequence[str] | None = None) -> list[BenchmarkItem]:
    """The items of the named benchmarks, or of all.

    Raises `BenchmarkUnusable` when one does not exist or is damaged.
    """
    stored = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    for name in names or ():
        if name not in stored:
            hint = (
                f"choose one of {', '.join(stored)}"
                if stored
                else "add it with `tunery benchmarks add NAME FILE`"
            )
            raise BenchmarkUnusable(f"there is no benchmark {name!r} in {folder}: {hint}")
    items: list[BenchmarkItem] = []
    for name in stored if names is None else names:
        with stored[name].open("rb") as stream:
            next(stream, None)
            try:
                items += [msgspec.json.decode(line, type=BenchmarkItem) for line in stream]
            except msgspec.MsgspecError as error:
                raise _damaged(stored[name], error) from error
    return items


def remove(folder: Path, name: str) -> None:
    """Delete a benchmark. Raises `BenchmarkUnusable` when there is none of this name."""
    path = folder / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name) or not path.is_file():
        raise BenchmarkUnusable(f"there is no benchmark {name!r} in {folder}")
    path.unlink()


def read_item(
    row: Mapping[str, Any], question: str | None = None, answer: str | None = None
) -> tuple[str, str] | None:
    """The texts of question and answer of a row; None when it has no question.

    `question` and `answer` are the keys to use. Without an answer its text is empty.
    """
    fields = {str(key).strip().lower().replace(" ", "_"): value for key, value in row.items()}
    text = _text(row.get(question)) if question else _first_text(fields, QUESTIONS)
    if not text.strip():
        return None
    answer_keys = [answer.lower()] if answer else [key for key in ANSWERS if key in fields]
    choices, labels = _choices(fields)
    for key in answer_keys:
        answer_text = _answer_text(fields.get(key), choices, labels)
        if answer_text.strip():
            return LEAD.sub("", text, count=1), answer_text
    return LEAD.sub("", text, count=1), ""


def _items(path: Path, name: str, question: str | None, answer: str | None) -> list[BenchmarkItem]:
    """The items of a file. Raises `BenchmarkUnusable` for a row without a question."""
    items: list[BenchmarkItem] = []
    for number, row in _rows(path):
        texts = read_item(row, question, answer)
        if texts is None:
            keys = ", ".join(map(str, row))
            raise BenchmarkUnusable(
                f"{path.name}, row {number}: none of the keys {keys} is known as a question; "
                "name the key with --question"
            )
        source = f"{path.name}:{number}"
        items.append(
            BenchmarkItem(benchmark=name, source=source, question=texts[0], answer=texts[1])
        )
    if not items:
        raise BenchmarkUnusable(f"{path.name} has no rows")
    return items


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield rows with their numbers. Raises `BenchmarkUnusable` for one that cannot be read."""
    try:
        yield from read_rows(path)
    except RowUnreadable as error:
        raise BenchmarkUnusable(str(error)) from error


def _first_text(fields: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((text for key in keys if (text := _text(fields.get(key))).strip()), "")


def _choices(fields: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The texts and the labels of the choices."""
    for key in CHOICES:
        match fields.get(key):
            case list() as texts:
                return [_text(text) for text in texts], []
            case {"text": list() as texts, **rest}:
                labels = rest.get("label")
                return [_text(text) for text in texts], labels if isinstance(labels, list) else []
            case _:
                continue
    numbered = [fields[key] for key in ("option1", "option2", "option3") if key in fields]
    return [_text(text) for text in numbered], [str(n + 1) for n in range(len(numbered))]


def _answer_text(answer: object, choices: Sequence[str], labels: Sequence[object]) -> str:
    """The text of an answer, which may be the label, number or letter of a choice."""
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


def _read_header(path: Path) -> BenchmarkHeader:
    try:
        with path.open("rb") as stream:
            return msgspec.json.decode(stream.readline(), type=BenchmarkHeader)
    except msgspec.MsgspecError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> BenchmarkUnusable:
    return BenchmarkUnusable(f"{path} is damaged ({error}); add the benchmark again")


def folder_in(data_dir: Path) -> Path:
    """The folder in which an installation stores its benchmarks."""
    return data_dir / "benchmarks"
