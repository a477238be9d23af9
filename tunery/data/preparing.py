"""`prepare`: turns a checked file into the packed shards that a training run reads.

A prepared directory contains `train.safetensors` and `validation.safetensors` (see `shards`),
`validation.jsonl` (prompts with the expected answer) and `manifest.json`, which is written last.
The same content, base model and policy have the same key and are prepared only once.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from schemas.dataset import LengthPolicy, ReasoningPolicy, RowKind
from schemas.units import PPM, divide_up
from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Collector, Finding, Note
from tunery.data.findings.limits import PACK_WINDOW_ROWS, PROGRESS_ROWS
from tunery.data.likeness.splitting import (
    LEFT_OUT,
    TRAIN,
    VALIDATE,
    AnswerClasses,
    SplitSides,
    split,
)
from tunery.data.mixing import MIXTURE_VERSION, MixedContent, MixedSource, times_seen
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.screening.screening import Screening, ScreeningPolicy, scrub
from tunery.data.tokens.chunks import (
    ChunkTokeniser,
    SelectedRow,
    TokenisedRow,
    split_into_chunks,
    write_atomically,
)
from tunery.data.tokens.length_policy import check_policy
from tunery.data.tokens.shard_packer import ShardPacker, ShardSummary
from tunery.data.tokens.shards import ShardWriter
from tunery.data.tokens.tokenizer import Tokenizer
from tunery.plan.methods import can_learn, rows_of_dialect
from tunery.platform.blobs.files import file_sha256

Progress: TypeAlias = Callable[[int, int], None]

RESULT: Final = "result"  # folder in the work directory that becomes the prepared directory
SIDES: Final = "sides"  # file in the work directory: the side of every valid row
UNSCREENED: Final = ScreeningPolicy(secrets="ignore")

# Increase it when the same input would give other bytes: keys change, old caches stay as they are.
PIPELINE_VERSION: Final = 4
PACKING: Final = f"histogram/{PACK_WINDOW_ROWS}"
MANIFEST: Final = "manifest.json"
FILES: Final = ("train.safetensors", "validation.safetensors", "validation.jsonl")
NAMED_MAX: Final = 5  # findings in the message of a refusal


class PreparationPolicy(Struct, frozen=True):
    """The choices that determine the bytes of a prepared directory."""

    max_length: int  # tokens of a packed row
    length_policy: LengthPolicy  # what happens to rows with more tokens
    validation_fraction_ppm: int  # share of validation rows, in parts per million
    seed: int  # seed of the choice of validation rows
    screen: ScreeningPolicy = UNSCREENED  # what happens to unwanted content
    # hash of the benchmark items that rows are compared with; None without
    benchmarks_sha256: str | None = None
    packing: str = PACKING  # packing algorithm


class PreparedFile(Struct, frozen=True):
    """Hash and size of one file of a prepared directory."""

    sha256: str
    size_bytes: int


class PreparedManifest(Struct, frozen=True):
    """`manifest.json` of a prepared directory."""

    key: str  # hash of the fields from `pipeline_version` to `policy`, which determine the others
    pipeline_version: int  # version of the code that wrote the files
    content_sha256: str  # hash of the training file
    validation_content_sha256: str | None  # hash of the validation file; None without one
    tokenizer_sha256: str  # hash of the base model's tokenizer
    template_sha256: str  # hash of the base model's chat template
    policy: PreparationPolicy  # how the file was prepared
    # train, validation: sums of the two shards
    train: ShardSummary
    validation: ShardSummary
    left_out: int  # rows that the screening policy removed
    files: dict[str, PreparedFile]  # hash and size of each file by name
    rows: RowKind = "answers"  # what the rows are
    mixture: tuple[MixedContent, ...] = ()  # further files that train
    reasoning: ReasoningPolicy = "keep"  # what became of the reasoning of answers


@dataclass(frozen=True, slots=True)
class PreparedDirectory:
    directory: Path  # its path
    manifest: PreparedManifest  # the content of its manifest
    reused: bool  # whether it already existed, so that nothing was tokenised

    @property
    def key(self) -> str:
        return self.manifest.key

    @property
    def train_path(self) -> Path:
        return self.directory / FILES[0]

    @property
    def validation_path(self) -> Path:
        return self.directory / FILES[1]

    @property
    def prompts_path(self) -> Path:
        return self.directory / FILES[2]


class DataRefused(Exception):
    """Raised when rows of a file cannot be prepared.

    findings: the errors, at most 1,000 of each code
    counts: number of findings by code
    """

    def __init__(self, findings: Collector, where: str = "") -> None:
        """where: a prefix of the message that names the file; empty: the only one"""
        self.findings = findings.with_severity("error")
        self.counts = dict(findings.counts)
        shown = [_describe(finding) for finding in self.findings[:NAMED_MAX]]
        more = findings.count("error") - len(shown)
        super().__init__(where + "; ".join(shown) + (f"; and {more} more" if more > 0 else ""))


def prepare(
    path: Path,
    base_dir: Path,
    out_dir: Path,
    *,
    max_length: int,
    length_policy: LengthPolicy = "reject",
    validation_fraction_ppm: int = 100_000,
    seed: int = 42,
    validation_path: Path | None = None,
    screen: ScreeningPolicy = UNSCREENED,
    benchmarks: Sequence[BenchmarkItem] = (),
    work_dir: Path | None = None,
    progress: Progress | None = None,
    rows: RowKind = "answers",
    mixture: Sequence[MixedSource] = (),
    reasoning: ReasoningPolicy = "keep",
) -> PreparedDirectory:
    """Render, tokenise, split and pack a file into `out_dir`, or reuse it if it has the same key.

    path: the training file
    base_dir: directory of the base model
    out_dir: appears complete or not at all; replaced when it has another key or damaged files
    max_length, length_policy: tokens of a packed row, and what happens to rows with more
    validation_fraction_ppm, seed: share of validation rows in millionths, seed of their choice
    validation_path: a validation file; then all rows of `path` train and the fraction is not used
    screen: what happens to near duplicates, benchmark items, personal data and toxic rows
    benchmarks: items that rows are compared with
    work_dir: intermediate results, on the disk of `out_dir`, from which the same call resumes
    progress: called with the bytes read so far and the bytes to read
    rows: what the method learns from. reasoning: whether the reasoning of answers is learned
    mixture: further files that train, each with how often an epoch sees its rows

    Raises `DataRefused` when rows cannot be prepared, `BaseUnusable` when the base model cannot
    tokenise, `ModelUnusable` when a screening model fails, and `OSError` for the files.
    """
    tokenizer = Tokenizer.load(base_dir)
    fraction = 0 if validation_path is not None else validation_fraction_ppm
    screen, benchmarks, benchmarks_sha256 = _screened(screen, benchmarks)
    policy = PreparationPolicy(max_length, length_policy, fraction, seed, screen, benchmarks_sha256)
    content = file_sha256(path)
    validation = None if validation_path is None else file_sha256(validation_path)
    mixed = [(file, MixedContent(file_sha256(file.path), file.weight_ppm)) for file in mixture]
    of_mixture = tuple(of_file for _, of_file in mixed)
    key = cache_key(content, validation, tokenizer, policy, rows, of_mixture, reasoning)
    if (existing := find_prepared(out_dir, key)) is not None:
        return existing
    meter = _ProgressMeter(path, validation_path, mixture, progress)
    with _work_directory(work_dir or out_dir.with_name(f".{out_dir.name}.work"), key) as work:
        directory = _empty_folder(work / RESULT)
        with _Preparation(policy, rows, reasoning, directory, work, meter) as preparation:
            train, held_out = preparation.run(tokenizer, path, validation_path, mixed, benchmarks)
        manifest = PreparedManifest(
            key=key,
            pipeline_version=PIPELINE_VERSION,
            content_sha256=content,
            validation_content_sha256=validation,
            tokenizer_sha256=tokenizer.sha256,
            template_sha256=tokenizer.template_sha256,
            policy=policy,
            train=train,
            validation=held_out,
            left_out=preparation.left_out,
            files={name: _describe_file(directory / name) for name in FILES},
            rows=rows,
            mixture=of_mixture,
            reasoning=reasoning,
        )
        _publish(directory, manifest, out_dir)
    return PreparedDirectory(out_dir, manifest, reused=False)


def _screened(
    screen: ScreeningPolicy, items: Sequence[BenchmarkItem]
) -> tuple[ScreeningPolicy, Sequence[BenchmarkItem], str | None]:
    """Reduce a policy and its benchmark items to those that change the prepared bytes.

    Returns both, and the hash of the items; None without items.
    """
    screen = screen.without_warnings()  # the check gives warnings; the bytes are the same
    items = () if screen.benchmarks == "flag" else items
    return screen, items, hashlib.sha256(msgspec.json.encode(items)).hexdigest() if items else None


def cache_key(
    content_sha256: str,
    validation_sha256: str | None,
    tokenizer: Tokenizer,
    policy: PreparationPolicy,
    rows: RowKind = "answers",
    mixture: tuple[MixedContent, ...] = (),
    reasoning: ReasoningPolicy = "keep",
) -> str:
    """Hash everything that the bytes of a prepared directory depend on (SHA-256 in hex)."""
    parts: tuple[object, ...] = (
        PIPELINE_VERSION,
        content_sha256,
        validation_sha256,
        tokenizer.sha256,
        tokenizer.template_sha256,
        policy,
    )
    if rows != "answers":  # there were no others once
        parts += (rows,)
    if mixture:
        parts += (MIXTURE_VERSION, mixture)
    if reasoning != "keep":
        parts += ("reasoning", reasoning)
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def find_prepared(directory: Path, key: str) -> PreparedDirectory | None:
    """The directory if it was prepared with this key and every file has its hash; else None."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=PreparedManifest)
        is_whole = all(
            _describe_file(directory / name) == file for name, file in manifest.files.items()
        )
    except (OSError, msgspec.MsgspecError):
        return None
    if manifest.key != key or not is_whole or manifest.files.keys() != set(FILES):
        return None
    return PreparedDirectory(directory, manifest, reused=True)


class _ProgressMeter:
    """Reports the bytes read so far, of the bytes that all passes read together."""

    def __init__(
        self,
        path: Path,
        validation_path: Path | None,
        mixture: Sequence[MixedSource],
        progress: Progress | None,
    ) -> None:
        sizes = [path.stat().st_size * 2]
        sizes += [] if validation_path is None else [validation_path.stat().st_size]
        sizes += [
            file.path.stat().st_size * (1 + divide_up(file.weight_ppm, PPM)) for file in mixture
        ]
        self._total, self._before, self._progress = sum(sizes), 0, progress

    def report(self, bytes_read: int) -> None:
        """Report the bytes read in the current pass."""
        if self._progress is not None:
            self._progress(self._before + bytes_read, self._total)

    def end_pass(self, bytes_read: int) -> None:
        self.report(bytes_read)
        self._before += bytes_read


class _Preparation:
    """One run: two passes over the training file, and one over a validation file.

    The first pass assigns every row its side, the second tokenises in chunks. The results of both
    stay in `work` until the end, so that an interrupted run can be resumed. The files of a mixture
    are split together, and each is tokenised as often as an epoch sees its rows.

    left_out: rows that the screening policy removed
    """

    def __init__(
        self,
        policy: PreparationPolicy,
        rows: RowKind,
        reasoning: ReasoningPolicy,
        directory: Path,
        work: Path,
        meter: _ProgressMeter,
    ) -> None:
        self.left_out = 0
        self._policy, self._rows_kind, self._reasoning = policy, rows, reasoning
        self._meter = meter
        self._work = work
        self._refused = Collector()
        self._prompts = (directory / FILES[2]).open("wb")
        self._train = ShardPacker(ShardWriter(directory / FILES[0]), policy.max_length)
        self._validation = ShardPacker(ShardWriter(directory / FILES[1]), policy.max_length)

    def __enter__(self) -> "_Preparation":
        return self

    def __exit__(self, *_: object) -> None:
        self._prompts.close()
        self._train.writer.abandon()
        self._validation.writer.abandon()

    def run(
        self,
        tokenizer: Tokenizer,
        path: Path,
        validation: Path | None,
        mixture: Sequence[tuple[MixedSource, MixedContent]],
        items: Sequence[BenchmarkItem],
    ) -> tuple[ShardSummary, ShardSummary]:
        """Write both shards and return their sums.

        Raises `DataRefused` when a row cannot be used.
        """
        limits = (self._policy.max_length, self._policy.length_policy)
        tokeniser = ChunkTokeniser(tokenizer, *limits, self._work, self._refused, self._rows_kind)
        files = [path, *(source.path for source, _ in mixture)]
        sides, *others = self._assign_sides(files, items)
        self.left_out = sum(int(np.count_nonzero(of == LEFT_OUT)) for of in (sides, *others))
        for number, rows in enumerate(split_into_chunks(self._select_rows(path, sides))):
            self._write(tokeniser.tokenise(f"train-{number:05}", rows))
        if mixture:
            self._refuse_errors(_file_name(0))
        for at, ((source, content), of_file) in enumerate(zip(mixture, others, strict=True)):
            self._mix(tokeniser, at, source, content, of_file)
            self._refuse_errors(_file_name(at + 1))
        if validation is not None:
            selected = (
                self._select(row, conversation, validates=True)
                for row, conversation in self._rows(validation)
            )
            for number, rows in enumerate(split_into_chunks(selected)):
                self._write(tokeniser.tokenise(f"validation-{number:05}", rows))
        return self._finish()

    def _mix(
        self,
        tokeniser: ChunkTokeniser,
        at: int,
        source: MixedSource,
        content: MixedContent,
        sides: SplitSides,
    ) -> None:
        """Write the rows of a further file, those that train as often as an epoch sees them."""
        key = f"{self._policy.seed}:{content.sha256}"
        times = times_seen(sides == TRAIN, source.weight_ppm, key)
        for turn in range(max(1, int(times.max(initial=0)))):
            self._train.end_row()  # so that no packed row has a document twice
            seen = (times > turn) | ((sides == VALIDATE) & (turn == 0))
            rows = self._select_rows(source.path, np.where(seen, sides, LEFT_OUT).astype(np.uint8))
            for number, chunk in enumerate(split_into_chunks(rows)):
                name = f"mixed-{at:02}-{turn:02}-{number:05}"
                self._write(tokeniser.tokenise(name, chunk))

    def _finish(self) -> tuple[ShardSummary, ShardSummary]:
        self._refuse_errors()
        if not self._train.rows:
            self._refused.add(Note("empty_file").to_finding(None, None))
            raise DataRefused(self._refused)
        self._prompts.flush()
        os.fsync(self._prompts.fileno())
        return self._train.close(), self._validation.close()

    def _assign_sides(
        self, paths: Sequence[Path], items: Sequence[BenchmarkItem]
    ) -> list[SplitSides]:
        """The first pass: check every row, and assign each valid row of each file its side.

        Rows of several files are compared as those of one: none trains on what validates.
        """
        saved = [self._work / (f"{SIDES}-{at:02}" if at else SIDES) for at in range(len(paths))]
        if saved[0].is_file():
            for path in paths:
                self._meter.end_pass(path.stat().st_size)
            return [np.fromfile(path, np.uint8) for path in saved]
        screen, classes = self._policy.screen, AnswerClasses()
        ends: list[int] = []
        with Screening(screen, items, self._work) as screening:
            for at, path in enumerate(paths):
                count = ends[-1] if ends else 0
                for row, conversation in self._rows(path):
                    classes.add(conversation)
                    self._add_errors(screening.add(row, conversation))
                    count += 1
                ends.append(count)
                self._add_errors(screening.flush())
                self._refuse_errors(_file_name(at) if len(paths) > 1 else "")
            clusters, used = screening.clusters(), screening.used()
        fraction = self._policy.validation_fraction_ppm
        joined = split(clusters, used, classes.rows(), fraction, self._policy.seed)
        sides = np.split(joined, ends[:-1])
        for path, of_file in reversed([*zip(saved, sides, strict=True)]):  # the first ends it
            write_atomically(path, of_file.tobytes())
        return sides

    def _select_rows(self, path: Path, sides: SplitSides) -> Iterator[SelectedRow]:
        for side, (row, conversation) in zip(sides.tolist(), self._rows(path), strict=True):
            if side != LEFT_OUT:
                yield self._select(row, conversation, validates=side == VALIDATE)

    def _select(self, row: Row, conversation: Conversation, *, validates: bool) -> SelectedRow:
        return SelectedRow(row, scrub(conversation, self._policy.screen), validates)

    def _rows(self, path: Path) -> Iterator[tuple[Row, Conversation]]:
        checker = Checker(reasoning=self._reasoning)
        with open_rows(path) as rows:
            for done, item in enumerate(checker.conversations(rows)):
                if done % PROGRESS_ROWS == 0:
                    self._meter.report(rows.bytes_read)
                yield item
            self._meter.end_pass(rows.bytes_read)
        dialect = checker.dialect
        if dialect is not None and not can_learn(self._rows_kind, rows_of_dialect(dialect)):
            self._refused.add(Note("not_trainable", detail=dialect).to_finding(None, None))
        if (note := check_policy(self._policy.length_policy, checker.dialect)) is not None:
            self._refused.add(note.to_finding(None, None))
        self._add_errors(checker.findings.with_severity("error"))

    def _add_errors(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.is_error:
                self._refused.add(finding)

    def _refuse_errors(self, where: str = "") -> None:
        if self._refused.count("error"):
            raise DataRefused(self._refused, where)

    def _write(self, rows: Sequence[TokenisedRow]) -> None:
        for row in rows:
            (self._validation if row.validates else self._train).add(row.documents, cut=row.cut)
            self._prompts.write(row.prompt)


def _describe(finding: Finding) -> str:
    where = "file" if finding.row is None else f"row {finding.row}"
    return f"{where}{finding.pointer and f' {finding.pointer}'}: {finding.message} ({finding.code})"


def _file_name(at: int) -> str:
    """A prefix for what is wrong with a file of a mixture, as a request names it."""
    return f"training.mixture.{at - 1}: " if at else "training_file: "


def _describe_file(path: Path) -> PreparedFile:
    return PreparedFile(file_sha256(path), path.stat().st_size)


@contextmanager
def _work_directory(folder: Path, key: str) -> Iterator[Path]:
    """A folder for intermediate results of this key; those of other keys are deleted.

    It remains when the process is killed, and is deleted otherwise.
    """
    work = folder / key
    for other in folder.iterdir() if folder.is_dir() else ():
        if other != work:
            shutil.rmtree(other, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _empty_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _publish(directory: Path, manifest: PreparedManifest, final: Path) -> None:
    """Complete a directory, rename it to its final name, and flush the rename to disk."""
    content = msgspec.json.format(msgspec.json.encode(manifest))
    write_atomically(directory / MANIFEST, content + b"\n")
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.rmtree(final)
    directory.rename(final)
    handle = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
