"""`check`: every bad row of a file in one pass, each with its place and its fix."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from tunery.data import chat
from tunery.data.dialects import Conversation, Dialect, dialect_of, keys, majority
from tunery.data.duplicates import Tally, fingerprint
from tunery.data.findings import Collector, Finding, Note
from tunery.data.limits import DIALECT_ROWS, PROGRESS_ROWS, ROWS_MIN
from tunery.data.measuring import Measure
from tunery.data.pairs import check_pair
from tunery.data.parsing import Object, parse, repeated_key
from tunery.data.reading import Rows, Source, open_rows
from tunery.data.rendering import Tokenizer
from tunery.data.report import Report, TokenCounts
from tunery.data.rows import Row

Progress: TypeAlias = Callable[[int], None]

ROWS_RECOMMENDED: Final = 50
USED: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(("messages", "tools", "parallel_tool_calls")),
    "sharegpt": frozenset(("conversations", "tools")),
    "prompt_completion": frozenset(("prompt", "completion")),
}
IGNORED_KEYS_MAX: Final = 20


class Checker:
    """Checks the rows of one file, in order. Give it to one file only."""

    def __init__(
        self, *, tokenizer: Tokenizer | None = None, max_length: int | None = None
    ) -> None:
        self.findings = Collector()
        self.tally = Tally()
        self.dialect: Dialect | None = None
        self.rows = 0
        self.rows_with_errors = 0
        self.measure = Measure(tokenizer, max_length) if tokenizer is not None else None
        self._ignored: set[str] = set()
        self._progress: Progress | None = None

    def conversations(self, rows: Rows) -> Iterator[tuple[Row, Conversation]]:
        """The good rows; the others are in `findings` and counted."""
        for row, value in self._values(rows):
            if isinstance(value, Note):
                notes, conversation = [value], None
            else:
                notes = []
                conversation = self._conversation(row, value, notes)
            failed = False
            for note in notes:
                self.findings.add(note.at(row.number, row.line))
                failed |= note.is_error
            self.rows_with_errors += failed
            if conversation is not None and not failed:
                yield row, conversation

    def run(self, rows: Rows, progress: Progress | None = None) -> None:
        """Check every row, and measure it when there is a tokenizer."""
        self._progress = progress
        for row, conversation in self.conversations(rows):
            self.tally.add(fingerprint(conversation))
            if self.measure is not None:
                self._record(self.measure.add(row, conversation))
        if self.measure is not None:
            self._record(self.measure.flush())
        if progress is not None:
            progress(rows.bytes_read)

    def finish(self, rows_min: int) -> None:
        """Findings about the file as a whole."""
        add = self.findings.add
        if self.rows == 0:
            if not self.findings.count("error"):
                add(Note("empty_file").at(None, None))
            return
        distinct = self.tally.distinct()
        good = self.rows - self.rows_with_errors
        if self.rows < rows_min:
            detail = f"{self.rows}, at least {rows_min} are needed"
            add(Note("too_few_rows", detail=detail).at(None, None))
        elif self.rows < ROWS_RECOMMENDED:
            add(Note("few_rows", detail=f"{self.rows}").at(None, None))
        if good > 1 and distinct == 1 and self.rows == good:
            add(Note("all_rows_equal", detail=f"{good} times").at(None, None))
        elif good > distinct:
            detail = f"{good - distinct} of {good}"
            add(Note("duplicate_rows", detail=detail).at(None, None))
        if self._ignored:
            names = ", ".join(sorted(self._ignored))
            add(Note("ignored_columns", detail=names).at(None, None))

    def _record(self, findings: list[Finding]) -> None:
        failed = {finding.row for finding in findings if Measure.is_error(finding)}
        self.rows_with_errors += len(failed)
        for finding in findings:
            self.findings.add(finding)

    def _values(self, rows: Rows) -> Iterator[tuple[Row, Object | Note]]:
        """Each row with its object. The first rows are held back until they tell the dialect."""
        parsed = self._parsed(rows)
        head: list[tuple[Row, Object | Note]] = []
        for item in parsed:
            head.append(item)
            if len(head) == DIALECT_ROWS:
                break
        self.dialect = majority([value for _, value in head if not isinstance(value, Note)])
        yield from chain(head, parsed)

    def _parsed(self, rows: Rows) -> Iterator[tuple[Row, Object | Note]]:
        for read, item in enumerate(rows):
            if self._progress is not None and read % PROGRESS_ROWS == 0:
                self._progress(rows.bytes_read)
            match item:
                case Row(content=bytes(raw)):
                    self.rows += 1
                    yield item, parse(raw)
                case Row(content=dict(cells)):
                    self.rows += 1
                    yield item, cells
                case Row():
                    raise AssertionError("a row holds bytes or cells")
                case Finding():
                    self._unreadable(item)
                case _:
                    assert_never(item)

    def _unreadable(self, finding: Finding) -> None:
        """A place in the file that gave no row; it counts as one when it should have been one."""
        if finding.row is not None and finding.code != "blank_line":
            self.rows += 1
            self.rows_with_errors += 1
        self.findings.add(finding)

    def _conversation(self, row: Row, value: Object, notes: list[Note]) -> Conversation | None:
        dialect = dialect_of(value)
        if isinstance(dialect, Note):
            missing = self._missing(value, dialect)
            notes.append(missing)
            return None
        if self.dialect is not None and dialect != self.dialect:
            detail = f"it is {dialect}, the file is {self.dialect}"
            notes.append(Note("other_dialect", detail=detail))
            return None
        unused = value.keys() - USED[dialect]
        if unused and len(self._ignored) < IGNORED_KEYS_MAX:
            self._ignored.update(name[:40] for name in sorted(unused))
        return self._checked(dialect, row, value, notes)

    def _missing(self, value: Object, found: Note) -> Note:
        """A row without a dialect, said in the words of the file's dialect where it has one."""
        foreign = "looks like" in found.detail
        if found.code == "mixed_formats" or foreign or self.dialect is None:
            return found
        code = "missing_prompt" if self.dialect == "prompt_completion" else "missing_messages"
        return Note(code, detail=keys(value))

    def _checked(
        self, dialect: Dialect, row: Row, value: Object, notes: list[Note]
    ) -> Conversation | None:
        conversation: Conversation | None
        match dialect:
            case "chat" | "sharegpt":
                names = chat.CHAT if dialect == "chat" else chat.SHAREGPT
                conversation = chat.check_chat(value, names, notes)
                keys_seen = chat.keys_of(value, names)
            case "prompt_completion":
                conversation = check_pair(value, notes)
                keys_seen = len(value)
            case _:
                assert_never(dialect)
        if isinstance(row.content, bytes):
            repeated = repeated_key(row.content, keys_seen)
            if repeated is not None:
                notes.append(Note("duplicate_key", detail=repr(repeated[:40])))
        return conversation


def check(
    path: Source,
    *,
    base_dir: Path | None = None,
    min_rows: int = ROWS_MIN,
    max_length: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a JSONL or CSV file of chats or prompt / completion pairs.

    With `base_dir` every row is rendered and tokenised too; with `max_length` rows over it are
    errors. `progress` is called with the bytes read so far. Raises `OSError` when the file cannot
    be read and `BaseUnusable` when the base model's directory cannot tokenise.
    """
    tokenizer = None if base_dir is None else Tokenizer.load(base_dir)
    checker = Checker(tokenizer=tokenizer, max_length=max_length)
    with open_rows(path) as rows:
        checker.run(rows, progress)
        checker.finish(min_rows)
        findings = checker.findings
        errors = findings.count("error")
        return Report(
            verdict="rejected" if errors else "accepted",
            format=rows.format,
            dialect=checker.dialect,
            file_bytes=rows.bytes_read,
            rows=checker.rows,
            rows_with_errors=checker.rows_with_errors,
            distinct_rows=checker.tally.distinct(),
            errors=findings.of("error"),
            warnings=findings.of("warning"),
            counts=dict(sorted(findings.counts.items())),
            error_count=errors,
            warning_count=findings.count("warning"),
            tokens=None if checker.measure is None else checker.measure.counts(),
        )


def count_tokens(
    path: Source, base_dir: Path, *, progress: Progress | None = None
) -> TokenCounts | None:
    """Exact token counts of a file's good rows under one base model; None when there are none.

    Raises as `check` does.
    """
    return check(path, base_dir=base_dir, progress=progress).tokens
