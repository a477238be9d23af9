"""`check`: every bad row of a file in one pass, each with its place and its fix."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from schemas.dataset import LengthPolicy
from tunery.data.containers.reading import Rows, Source, open_rows
from tunery.data.containers.row import Block, Row
from tunery.data.dialects import chat, chat_fast_path, preferences, single_turn
from tunery.data.dialects.detection import (
    MISSING,
    TRAINABLE,
    USED,
    Conversation,
    Dialect,
    dialect_of,
    keys,
    majority,
)
from tunery.data.dialects.parsing import Object, parse, repeated_key
from tunery.data.findings.finding import Collector, Finding, Note
from tunery.data.findings.limits import DIALECT_ROWS, PROGRESS_ROWS, ROWS_MIN
from tunery.data.likeness.duplicates import Tally, fingerprint
from tunery.data.likeness.splitting import Classes
from tunery.data.reports.packing_plans import plans
from tunery.data.reports.quality import Quality
from tunery.data.reports.report import Report, TokenCounts
from tunery.data.reports.token_statistics import Measure
from tunery.data.screening.contamination import Item
from tunery.data.screening.screening import Policy, Screening
from tunery.data.tokens.length_policy import misused
from tunery.data.tokens.tokenizer import Tokenizer

Progress: TypeAlias = Callable[[int], None]
Rule: TypeAlias = Callable[[Object, list[Note]], Conversation | None]

DEFAULT: Final = Policy()
ROWS_RECOMMENDED: Final = 100
IMAGES: Final = frozenset(("image", "images", "videos"))  # beside the texts of multimodal rows
IGNORED_KEYS_MAX: Final = 20
RULES: Final[dict[Dialect, Rule]] = {
    "chat": partial(chat.check_chat, chat.CHAT),
    "sharegpt": partial(chat.check_chat, chat.SHAREGPT),
    "prompt_completion": single_turn.check_pair,
    "alpaca": single_turn.check_alpaca,
    "text": single_turn.check_plain,
    "dpo": preferences.check_preference,
    "kto": preferences.check_labelled,
}


class Checker:
    """Checks the rows of one file, in order. Give it to one file only."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None = None,
        max_length: int | None = None,
        length_policy: LengthPolicy = "reject",
        screening: Screening | None = None,
    ) -> None:
        self.findings = Collector()
        self.tally = Tally()
        self.quality = Quality()
        self.dialect: Dialect | None = None
        self.rows = 0
        self.rows_with_errors = 0
        self._classes = Classes()
        self.measure = (
            Measure(tokenizer, max_length, length_policy) if tokenizer is not None else None
        )
        self._length_policy = length_policy
        self.screening = screening
        self._failed: set[int] = set()  # good rows that screening or measuring refused
        self._ignored: set[str] = set()
        self._progress: Progress | None = None

    def conversations(self, rows: Rows) -> Iterator[tuple[Row, Conversation]]:
        """The good rows; the others are in `findings` and counted."""
        done = 0
        for item in self._headed(rows.blocks()):
            if self._progress is not None and self.rows >= done:
                self._progress(rows.bytes_read)
                done = self.rows + PROGRESS_ROWS
            match item:
                case Block():
                    yield from self._block(item)
                case Row():
                    if (conversation := self._row(item)) is not None:
                        yield item, conversation
                case Finding():
                    self._unreadable(item)
                case _:
                    assert_never(item)

    def run(self, rows: Rows, progress: Progress | None = None) -> None:
        """Check every row, and measure it when there is a tokenizer."""
        self._progress = progress
        for row, conversation in self.conversations(rows):
            self.tally.add(fingerprint(conversation))
            self.quality.add(row, conversation)
            self._classes.add(conversation)
            if self.screening is not None:
                self._record(self.screening.add(row, conversation))
            if self.measure is not None:
                self._record(self.measure.add(row, conversation))
        if self.screening is not None:
            self._record(self.screening.finish())
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
        if self.rows < rows_min and not self.findings.counts["too_many_rows"]:
            detail = f"{self.rows}, at least {rows_min} are needed"
            add(Note("too_few_rows", detail=detail).at(None, None))
        elif self.rows < ROWS_RECOMMENDED:
            add(Note("few_rows", detail=f"{self.rows}").at(None, None))
        if good > 1 and distinct == 1 and self.rows == good:
            add(Note("all_rows_equal", detail=f"{good} times").at(None, None))
        elif good > distinct:
            detail = f"{good - distinct} of {good}"
            add(Note("duplicate_rows", detail=detail).at(None, None))
        for finding in self.quality.findings():
            add(finding)
        if self.dialect is not None and self.dialect not in TRAINABLE:
            add(Note("not_trainable_yet", detail=self.dialect).at(None, None))
        if (wrong := misused(self._length_policy, self.dialect)) is not None:
            add(wrong.at(None, None))
        if self._ignored:
            names = ", ".join(sorted(self._ignored))
            add(Note("ignored_columns", detail=names).at(None, None))

    def tokens(self) -> TokenCounts | None:
        """The counts, and what preparation will make of rows that it takes as they are."""
        counts = None if self.measure is None else self.measure.counts()
        if self.measure is None or counts is None or self.screening is None:
            return counts
        clusters, lengths = self.screening.clusters(), self.measure.lengths
        if len(lengths) != len(clusters.first) or self.screening.scrubs:
            return counts  # rows with errors, of two texts each, or about to change
        made = plans(lengths, clusters, self.screening.used(), self._classes.rows())
        return replace(counts, plans=made)

    def _record(self, findings: list[Finding]) -> None:
        failed = {f.row for f in findings if f.row is not None and Measure.is_error(f)}
        self.rows_with_errors += len(failed - self._failed)
        self._failed |= failed
        for finding in findings:
            self.findings.add(finding)

    def _headed(self, items: Iterator[Block | Row | Finding]) -> Iterator[Block | Row | Finding]:
        """The same items. The first are held back until their rows tell the dialect."""
        head: list[Row | Finding] = []
        values: list[Object] = []
        seen = 0
        for item in items:
            for one in item.rows() if isinstance(item, Block) else (item,):
                head.append(one)
                if isinstance(one, Row) and seen < DIALECT_ROWS:
                    seen += 1
                    value = _value(one)
                    if not isinstance(value, Note):
                        values.append(value)
            if seen == DIALECT_ROWS:
                break
        self.dialect = majority(values)
        yield from chain(head, items)

    def _block(self, block: Block) -> Iterator[tuple[Row, Conversation]]:
        """The rows of a block: all at once when they are without fault, else one by one."""
        quickly = chat_fast_path.read(block.data, block.count) if self.dialect == "chat" else None
        if quickly is not None:
            self.rows += len(quickly)
            yield from zip(block.rows(), quickly, strict=True)
            return
        for row in block.rows():
            if (conversation := self._row(row)) is not None:
                yield row, conversation

    def _row(self, row: Row) -> Conversation | None:
        """One row by the rules of its dialect; None when it has an error."""
        self.rows += 1
        if self.dialect == "chat" and isinstance(row.content, bytes):
            quickly = chat_fast_path.read(row.content, 1)
            if quickly is not None:
                return quickly[0]
        notes: list[Note] = []
        value = _value(row)
        conversation = None
        if isinstance(value, Note):
            notes.append(value)
        else:
            conversation = self._conversation(row, value, notes)
        failed = any(note.is_error for note in notes)
        for note in notes:
            self.findings.add(note.at(row.number, row.line))
        self.rows_with_errors += failed
        return None if failed else conversation

    def _unreadable(self, finding: Finding) -> None:
        """A place in the file that gave no row; it counts as one when it should have been one."""
        if finding.row is not None and finding.code != "blank_line":
            self.rows += 1
            self.rows_with_errors += 1
        self.findings.add(finding)

    def _conversation(self, row: Row, value: Object, notes: list[Note]) -> Conversation | None:
        dialect = dialect_of(value, self.dialect)
        if isinstance(dialect, Note):
            notes.append(self._missing(value, dialect))
            return None
        if self.dialect is not None and dialect != self.dialect:
            detail = f"it is {dialect}, the file is {self.dialect}"
            notes.append(Note("other_dialect", detail=detail))
            return None
        unused = value.keys() - USED[dialect]
        if unused and len(self._ignored) < IGNORED_KEYS_MAX:
            self._ignored.update(name[:40] for name in sorted(unused))
        shown = sorted(key for key in IMAGES & value.keys() if value[key])
        notes += (Note("image_in_text", f"/{key}") for key in shown)
        conversation = RULES[dialect](value, notes)
        if isinstance(row.content, bytes):
            repeated = repeated_key(row.content, value)
            if repeated is not None:
                notes.append(Note("duplicate_key", detail=repr(repeated[:40])))
        return conversation

    def _missing(self, value: Object, found: Note) -> Note:
        """A row without a dialect, said in the words of the file's dialect where it has one."""
        foreign = "looks like" in found.detail
        if found.code == "mixed_formats" or foreign or self.dialect is None:
            return found
        return Note(MISSING[self.dialect], detail=keys(value))


def _value(row: Row) -> Object | Note:
    return parse(row.content) if isinstance(row.content, bytes) else row.content


def check(
    path: Source,
    *,
    base_dir: Path | None = None,
    min_rows: int = ROWS_MIN,
    max_rows: int | None = None,
    max_length: int | None = None,
    length_policy: LengthPolicy = "reject",
    policy: Policy = DEFAULT,
    benchmarks: Sequence[Item] = (),
    progress: Progress | None = None,
) -> Report:
    """Check a file, or a folder that `datasets` saved, in any format and dialect that is read.

    With `base_dir` every row is rendered and tokenised too; with `max_length` rows over it are
    errors, unless `length_policy` has them cut or split. `policy` says what is looked for besides,
    `benchmarks` are items that should not be in the rows. `progress` is called with the bytes read
    so far. Raises `OSError` when the file cannot be read and `BaseUnusable` when the base model's
    directory cannot tokenise.
    """
    tokenizer = None if base_dir is None else Tokenizer.load(base_dir)
    with Screening(policy, benchmarks) as screening, open_rows(path, max_rows) as rows:
        checker = Checker(
            tokenizer=tokenizer,
            max_length=max_length,
            length_policy=length_policy,
            screening=screening,
        )
        checker.run(rows, progress)
        checker.finish(min_rows)
        if rows.format == "json" and isinstance(path, Path) and ".jsonl" in path.suffixes:
            checker.findings.add(Note("json_array").at(None, None))
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
            not_looked_for=screening.not_looked_for(),
            errors=findings.of("error"),
            warnings=findings.of("warning"),
            counts=dict(sorted(findings.counts.items())),
            error_count=errors,
            warning_count=findings.count("warning"),
            lengths=checker.quality.lengths(),
            tokens=checker.tokens(),
            samples=() if checker.measure is None else tuple(checker.measure.samples),
        )


def count_tokens(
    path: Source, base_dir: Path, *, progress: Progress | None = None
) -> TokenCounts | None:
    """Exact token counts of a file's good rows under one base model; None when there are none.

    Raises as `check` does.
    """
    return check(path, base_dir=base_dir, progress=progress).tokens
