"""`check`: finds every bad row of a file in one pass, with its position and how to fix it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from schemas.dataset import LengthPolicy, ReasoningPolicy
from tunery.data.containers.reading import Rows, Source, open_rows
from tunery.data.containers.row import Block, Row
from tunery.data.dialects import chat, chat_fast_path, preferences, prompts, single_turn
from tunery.data.dialects.conversation import Conversation, without_reasoning
from tunery.data.dialects.detection import (
    MISSING_CODES,
    USED_KEYS,
    Dialect,
    describe_keys,
    dialect_of,
    majority_dialect,
)
from tunery.data.dialects.parsing import Object, parse, repeated_key
from tunery.data.findings.finding import Collector, Finding, Note
from tunery.data.findings.limits import DIALECT_ROWS, PROGRESS_ROWS, ROWS_MIN
from tunery.data.likeness.duplicates import HashCounter, fingerprint
from tunery.data.likeness.splitting import AnswerClasses
from tunery.data.reports.packing_plans import packing_plans
from tunery.data.reports.quality import Quality
from tunery.data.reports.report import CheckReport, TokenCounts
from tunery.data.reports.token_statistics import TokenStatistics
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.screening.screening import Screening, ScreeningPolicy
from tunery.data.tokens.length_policy import check_policy
from tunery.data.tokens.tokenizer import Tokenizer

Progress: TypeAlias = Callable[[int], None]
Rule: TypeAlias = Callable[[Object, list[Note]], Conversation | None]

DEFAULT: Final = ScreeningPolicy()
ROWS_RECOMMENDED: Final = 100
IMAGES: Final = frozenset(("image", "images", "videos"))  # keys of multimodal rows
IGNORED_KEYS_MAX: Final = 20
RULES: Final[dict[Dialect, Rule]] = {
    "chat": partial(chat.check_chat, chat.CHAT),
    "sharegpt": partial(chat.check_chat, chat.SHAREGPT),
    "prompt_completion": single_turn.check_pair,
    "alpaca": single_turn.check_alpaca,
    "text": single_turn.check_plain,
    "dpo": preferences.check_preference,
    "kto": preferences.check_labelled,
    "prompts": prompts.check_prompt,
}


class Checker:
    """Checks the rows of one file, in order. Use one instance per file.

    findings: everything that was wrong
    fingerprints: how often each fingerprint of a good row occurred
    quality: statistics of the good rows
    dialect: the dialect of most of the first rows; None until they are read, or without one
    rows: rows so far
    rows_with_errors: rows so far that have an error
    measure: token statistics; None without a base model
    screening: near duplicates, benchmark items, personal data and toxicity; None without screening
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None = None,
        max_length: int | None = None,
        length_policy: LengthPolicy = "reject",
        screening: Screening | None = None,
        reasoning: ReasoningPolicy = "keep",
    ) -> None:
        self.findings = Collector()
        self.fingerprints = HashCounter()
        self.quality = Quality()
        self.dialect: Dialect | None = None
        self.rows = 0
        self.rows_with_errors = 0
        self._classes = AnswerClasses()
        self.measure = (
            TokenStatistics(tokenizer, max_length, length_policy) if tokenizer is not None else None
        )
        self._length_policy = length_policy
        self._reasoning = reasoning
        self.screening = screening
        self._failed: set[int] = set()  # valid rows that screening or tokenising refused
        self._ignored: set[str] = set()
        self._progress: Progress | None = None

    def conversations(self, rows: Rows) -> Iterator[tuple[Row, Conversation]]:
        """Yield the valid rows; the others are counted and added to `findings`.

        Where reasoning is dropped, they come without it.
        """
        for row, conversation in self._valid(rows):
            kept = conversation if self._reasoning == "keep" else without_reasoning(conversation)
            if isinstance(kept, Note):
                self._record([kept.to_finding(row.number, row.line)])
            else:
                yield row, kept

    def _valid(self, rows: Rows) -> Iterator[tuple[Row, Conversation]]:
        next_report = 0
        for item in self._detect_dialect(rows.blocks()):
            if self._progress is not None and self.rows >= next_report:
                self._progress(rows.bytes_read)
                next_report = self.rows + PROGRESS_ROWS
            match item:
                case Block():
                    yield from self._block(item)
                case Row():
                    if (conversation := self._row(item)) is not None:
                        yield item, conversation
                case Finding():
                    self._add_unreadable(item)
                case _:
                    assert_never(item)

    def run(self, rows: Rows, progress: Progress | None = None) -> None:
        """Check every row; screen and tokenise the valid ones where that is configured.

        `progress` is called with the bytes read so far.
        """
        self._progress = progress
        for row, conversation in self.conversations(rows):
            self.fingerprints.add(fingerprint(conversation))
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
        """Add the findings about the file as a whole. `rows_min`: fewer rows are an error."""
        add = self.findings.add
        if self.rows == 0:
            if not self.findings.count("error"):
                add(Note("empty_file").to_finding(None, None))
            return
        distinct = self.fingerprints.distinct()
        good = self.rows - self.rows_with_errors
        if self.rows < rows_min and not self.findings.counts["too_many_rows"]:
            detail = f"{self.rows}, at least {rows_min} are needed"
            add(Note("too_few_rows", detail=detail).to_finding(None, None))
        elif self.rows < ROWS_RECOMMENDED:
            add(Note("few_rows", detail=f"{self.rows} rows").to_finding(None, None))
        if good > 1 and distinct == 1 and self.rows == good:
            add(Note("all_rows_equal", detail=f"{good} times").to_finding(None, None))
        elif good > distinct:
            detail = f"{good - distinct} of {good}"
            add(Note("duplicate_rows", detail=detail).to_finding(None, None))
        for finding in self.quality.findings():
            add(finding)
        if (note := check_policy(self._length_policy, self.dialect)) is not None:
            add(note.to_finding(None, None))
        if self._ignored:
            names = ", ".join(sorted(self._ignored))
            add(Note("ignored_columns", detail=names).to_finding(None, None))

    def tokens(self) -> TokenCounts | None:
        """The token counts; with packing plans when preparation will use the rows unchanged."""
        counts = None if self.measure is None else self.measure.counts()
        if self.measure is None or counts is None or self.screening is None:
            return counts
        clusters, lengths = self.screening.clusters(), self.measure.lengths
        if len(lengths) != len(clusters.first) or self.screening.scrubs:
            return counts  # some rows have errors, or will be changed
        plans = packing_plans(lengths, clusters, self.screening.used(), self._classes.rows())
        return replace(counts, plans=plans)

    def _record(self, findings: list[Finding]) -> None:
        failed = {f.row for f in findings if f.row is not None and f.is_error}
        self.rows_with_errors += len(failed - self._failed)
        self._failed |= failed
        for finding in findings:
            self.findings.add(finding)

    def _detect_dialect(
        self, items: Iterator[Block | Row | Finding]
    ) -> Iterator[Block | Row | Finding]:
        """Detect the dialect from the first rows, then yield all items unchanged."""
        head: list[Row | Finding] = []
        values: list[Object] = []
        rows = 0
        for item in items:
            for part in item.rows() if isinstance(item, Block) else (item,):
                head.append(part)
                if isinstance(part, Row) and rows < DIALECT_ROWS:
                    rows += 1
                    value = _parse_row(part)
                    if not isinstance(value, Note):
                        values.append(value)
            if rows == DIALECT_ROWS:
                break
        self.dialect = majority_dialect(values)
        yield from chain(head, items)

    def _block(self, block: Block) -> Iterator[tuple[Row, Conversation]]:
        """Check the rows of a block: together when all are valid, else one by one."""
        is_chat = self.dialect == "chat"
        valid = chat_fast_path.read(block.data, block.count) if is_chat else None
        if valid is not None:
            self.rows += len(valid)
            yield from zip(block.rows(), valid, strict=True)
            return
        for row in block.rows():
            if (conversation := self._row(row)) is not None:
                yield row, conversation

    def _row(self, row: Row) -> Conversation | None:
        """Check one row by the rules of its dialect; None when it has an error."""
        self.rows += 1
        if self.dialect == "chat" and isinstance(row.content, bytes):
            valid = chat_fast_path.read(row.content, 1)
            if valid is not None:
                return valid[0]
        notes: list[Note] = []
        value = _parse_row(row)
        conversation = None
        if isinstance(value, Note):
            notes.append(value)
        else:
            conversation = self._conversation(row, value, notes)
        failed = any(note.is_error for note in notes)
        for note in notes:
            self.findings.add(note.to_finding(row.number, row.line))
        self.rows_with_errors += failed
        return None if failed else conversation

    def _add_unreadable(self, finding: Finding) -> None:
        """Add a finding from reading; it counts as a row unless the line is merely blank."""
        if finding.row is not None and finding.code != "blank_line":
            self.rows += 1
            self.rows_with_errors += 1
        self.findings.add(finding)

    def _conversation(self, row: Row, value: Object, notes: list[Note]) -> Conversation | None:
        """Apply the rules of the row's dialect; None when an error was noted."""
        dialect = dialect_of(value, self.dialect)
        if isinstance(dialect, Note):
            notes.append(self._without_dialect(value, dialect))
            return None
        if self.dialect is not None and dialect != self.dialect:
            detail = f"it is {dialect}, the file is {self.dialect}"
            notes.append(Note("other_dialect", detail=detail))
            return None
        unused = value.keys() - USED_KEYS[dialect] if USED_KEYS[dialect] else set()
        if unused and len(self._ignored) < IGNORED_KEYS_MAX:
            self._ignored.update(name[:40] for name in sorted(unused))
        images = sorted(key for key in IMAGES & value.keys() if value[key])
        notes += (Note("image_in_text", f"/{key}") for key in images)
        conversation = RULES[dialect](value, notes)
        if isinstance(row.content, bytes):
            repeated = repeated_key(row.content, value)
            if repeated is not None:
                notes.append(Note("duplicate_key", detail=repr(repeated[:40])))
        return conversation

    def _without_dialect(self, value: Object, note: Note) -> Note:
        """The note about a row without a dialect; names what the file's dialect misses in it."""
        is_other_format = "looks like" in note.detail
        if note.code == "mixed_formats" or is_other_format or self.dialect is None:
            return note
        return Note(MISSING_CODES[self.dialect], detail=describe_keys(value))


def _parse_row(row: Row) -> Object | Note:
    return parse(row.content) if isinstance(row.content, bytes) else row.content


def check(
    path: Source,
    *,
    base_dir: Path | None = None,
    min_rows: int = ROWS_MIN,
    max_rows: int | None = None,
    max_length: int | None = None,
    length_policy: LengthPolicy = "reject",
    reasoning: ReasoningPolicy = "keep",
    policy: ScreeningPolicy = DEFAULT,
    benchmarks: Sequence[BenchmarkItem] = (),
    progress: Progress | None = None,
) -> CheckReport:
    """Check a file, or a folder that `datasets` saved, in any supported format and dialect.

    path: a file, a folder, or a binary stream at its beginning
    base_dir: directory of a base model, whose tokenizer and chat template every row is tried with
    min_rows: fewer rows are an error
    max_rows: more rows are an error, and reading stops
    max_length: tokens a row may have; needs `base_dir`
    length_policy: whether longer rows are errors, or will be truncated or split
    reasoning: whether the reasoning of answers is learned, or removed first
    policy: what the rows are screened for
    benchmarks: items that should not be in the rows
    progress: called with the bytes read so far

    Raises `OSError` when the file cannot be read, and `BaseUnusable` when the directory of the base
    model holds no usable tokenizer.
    """
    tokenizer = None if base_dir is None else Tokenizer.load(base_dir)
    with Screening(policy, benchmarks) as screening, open_rows(path, max_rows) as rows:
        checker = Checker(
            tokenizer=tokenizer,
            max_length=max_length,
            length_policy=length_policy,
            screening=screening,
            reasoning=reasoning,
        )
        checker.run(rows, progress)
        checker.finish(min_rows)
        if rows.format == "json" and isinstance(path, Path) and ".jsonl" in path.suffixes:
            checker.findings.add(Note("json_array").to_finding(None, None))
        findings = checker.findings
        errors = findings.count("error")
        return CheckReport(
            verdict="rejected" if errors else "accepted",
            format=rows.format,
            dialect=checker.dialect,
            file_bytes=rows.bytes_read,
            rows=checker.rows,
            rows_with_errors=checker.rows_with_errors,
            distinct_rows=checker.fingerprints.distinct(),
            not_looked_for=screening.not_checked(),
            errors=findings.with_severity("error"),
            warnings=findings.with_severity("warning"),
            counts=dict(sorted(findings.counts.items())),
            error_count=errors,
            warning_count=findings.count("warning"),
            lengths=checker.quality.lengths(),
            tokens=checker.tokens(),
            samples=() if checker.measure is None else tuple(checker.measure.samples),
        )
