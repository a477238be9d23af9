"""`prepare`: a checked file to the packed shards that a training run reads. Done once per key.

A prepared directory holds `train.safetensors`, `validation.safetensors` (see `shards`),
`validation.jsonl` (prompts with the wanted answer) and `manifest.json`, written last.
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

from schemas.dataset import LengthPolicy
from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.containers.row import Row
from tunery.data.dialects.detection import TRAINABLE, Conversation
from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Collector, Finding, Note
from tunery.data.findings.limits import PACK_WINDOW_ROWS, PACK_WINDOW_TOKENS, PROGRESS_ROWS
from tunery.data.likeness.splitting import LEFT_OUT, VALIDATE, Classes, Sides, split
from tunery.data.screening import screening
from tunery.data.screening.contamination import Item
from tunery.data.screening.screening import Screening, scrubbed
from tunery.data.tokens.chunks import Given, PieceMaker, Tokenised, grouped, write_whole
from tunery.data.tokens.length_policy import misused
from tunery.data.tokens.packing import pack
from tunery.data.tokens.shards import Document, ShardWriter
from tunery.data.tokens.tokenizer import Tokenizer

Progress: TypeAlias = Callable[[int, int], None]

RESULT: Final = "result"  # becomes the prepared directory
SIDES: Final = "sides"  # of every good row, in the work directory
UNSCREENED: Final = screening.Policy(secrets="ignore")

# Raise it when the same input would give other bytes: keys change, old caches are left alone.
PIPELINE_VERSION: Final = 3
PACKING: Final = f"histogram/{PACK_WINDOW_ROWS}"
MANIFEST: Final = "manifest.json"
FILES: Final = ("train.safetensors", "validation.safetensors", "validation.jsonl")
NAMED_MAX: Final = 5  # findings in the message of a refusal


class Policy(Struct, frozen=True):
    """Choices that decide the bytes. Lengths in tokens; the fraction in parts per million."""

    max_length: int
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    seed: int
    screen: screening.Policy = UNSCREENED
    benchmarks_sha256: str | None = None
    packing: str = PACKING


class Side(Struct, frozen=True):
    """Sums of one shard; `longest` in tokens. `truncated` rows were cut to `max_length`.

    Where rows were split there are more `sequences` than rows, and each cut adds a token: the last
    one before it is read again, unlearnt.
    """

    rows: int
    sequences: int
    packed_rows: int
    tokens: int
    trainable_tokens: int
    truncated: int
    longest: int


class FileFact(Struct, frozen=True):
    sha256: str
    size_bytes: int


class Manifest(Struct, frozen=True):
    """`key` is the hash of everything above `train`; the rest follows from it."""

    key: str
    pipeline_version: int
    content_sha256: str
    validation_content_sha256: str | None
    tokenizer_sha256: str
    template_sha256: str
    policy: Policy
    train: Side
    validation: Side
    left_out: int  # rows that the policy removes
    files: dict[str, FileFact]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared directory. `reused`: it was there already, nothing was tokenised."""

    directory: Path
    manifest: Manifest
    reused: bool

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
    """The file cannot be prepared like this. `findings` lists why; the message names the first."""

    def __init__(self, findings: Collector) -> None:
        self.findings = findings.of("error")
        self.counts = dict(findings.counts)
        shown = [_place(finding) for finding in self.findings[:NAMED_MAX]]
        more = findings.count("error") - len(shown)
        super().__init__("; ".join(shown) + (f"; and {more} more" if more > 0 else ""))


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
    screen: screening.Policy = UNSCREENED,
    benchmarks: Sequence[Item] = (),
    work_dir: Path | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Render, tokenise, split and pack a file into `out_dir`, or find it there for the same key.

    With `validation_path` all rows of `path` train and the fraction is not used. `screen` says what
    becomes of repeats, of items of `benchmarks` and of personal data. `progress` gets bytes done
    and bytes to do. `out_dir` appears complete or not at all; one that holds another key or damaged
    files is replaced. What is done stays in `work_dir` until the end (a folder on the same disk,
    beside `out_dir` when not given): after a crash the same call goes on there. Raises
    `DataRefused`, `BaseUnusable`, `ModelUnusable` and `OSError`.
    """
    tokenizer = Tokenizer.load(base_dir)
    fraction = 0 if validation_path is not None else validation_fraction_ppm
    screen = screen.without_warnings()  # told at the check; the bytes are the same
    if screen.benchmarks == "flag":
        benchmarks = ()
    known = _sha256(benchmarks) if benchmarks else None
    policy = Policy(max_length, length_policy, fraction, seed, screen, known)
    content = file_sha256(path)
    validation = None if validation_path is None else file_sha256(validation_path)
    key = cache_key(content, validation, tokenizer, policy)
    if (found := find(out_dir, key)) is not None:
        return found
    meter = _Meter(path, validation_path, progress)
    work_in = work_dir or out_dir.with_name(f".{out_dir.name}.work")
    with _work_directory(work_in, key) as work:
        directory = _empty(work / RESULT)
        with _Run(policy, directory, work, meter) as run:
            train, held_out = run.files(tokenizer, path, validation_path, benchmarks)
        facts = {name: _fact(directory / name) for name in FILES}
        manifest = Manifest(
            key=key,
            pipeline_version=PIPELINE_VERSION,
            content_sha256=content,
            validation_content_sha256=validation,
            tokenizer_sha256=tokenizer.sha256,
            template_sha256=tokenizer.template_sha256,
            policy=policy,
            train=train,
            validation=held_out,
            left_out=run.left_out,
            files=facts,
        )
        write_whole(
            directory / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
        )
        _publish(directory, out_dir)
    return Prepared(out_dir, manifest, reused=False)


def cache_key(
    content_sha256: str, validation_sha256: str | None, tokenizer: Tokenizer, policy: Policy
) -> str:
    """What the bytes of a prepared directory depend on, and nothing else, as SHA-256 in hex."""
    parts = (
        PIPELINE_VERSION,
        content_sha256,
        validation_sha256,
        tokenizer.sha256,
        tokenizer.template_sha256,
        policy,
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def find(directory: Path, key: str) -> Prepared | None:
    """A whole prepared directory with this key: every file has the hash of the manifest."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
        whole = all(_fact(directory / name) == fact for name, fact in manifest.files.items())
    except (OSError, msgspec.MsgspecError):
        return None
    if manifest.key != key or not whole or manifest.files.keys() != set(FILES):
        return None
    return Prepared(directory, manifest, reused=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Meter:
    """Bytes done of the bytes that all passes together read."""

    def __init__(self, path: Path, validation_path: Path | None, progress: Progress | None) -> None:
        sizes = [path.stat().st_size * 2]
        sizes += [] if validation_path is None else [validation_path.stat().st_size]
        self._total, self._before, self._progress = sum(sizes), 0, progress

    def at(self, bytes_read: int) -> None:
        if self._progress is not None:
            self._progress(self._before + bytes_read, self._total)

    def end_pass(self, bytes_read: int) -> None:
        self.at(bytes_read)
        self._before += bytes_read


class _Run:
    """One preparation: two passes over the training file, one over a validation file.

    The first pass decides the side of every row; it, and each piece of the second, is kept in
    `work` until the end, so that a run which is killed goes on there.
    """

    def __init__(self, policy: Policy, directory: Path, work: Path, meter: _Meter) -> None:
        self.left_out = 0
        self._policy = policy
        self._meter = meter
        self._work = work
        self._refused = Collector()
        self._prompts = (directory / FILES[2]).open("wb")
        self._train = _Sink(ShardWriter(directory / FILES[0]), policy.max_length)
        self._validation = _Sink(ShardWriter(directory / FILES[1]), policy.max_length)

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._prompts.close()
        self._train.writer.abandon()
        self._validation.writer.abandon()

    def files(
        self, tokenizer: Tokenizer, path: Path, validation: Path | None, items: Sequence[Item]
    ) -> tuple[Side, Side]:
        """Both sides, written. Raises `DataRefused` when any row could not be used."""
        limits = (self._policy.max_length, self._policy.length_policy)
        maker = PieceMaker(tokenizer, *limits, self._work, self._refused)
        sides = self._sides(path, items)
        self.left_out = int(np.count_nonzero(sides == LEFT_OUT))
        for number, rows in enumerate(grouped(self._given(path, sides))):
            self._sink(maker.make(f"train-{number:05}", rows))
        if validation is not None:
            rest = (self._one(row, it, validates=True) for row, it in self._rows(validation))
            for number, rows in enumerate(grouped(rest)):
                self._sink(maker.make(f"validation-{number:05}", rows))
        return self._finish()

    def _finish(self) -> tuple[Side, Side]:
        self._refuse_errors()
        if not self._train.rows:
            self._refused.add(Note("empty_file").at(None, None))
            raise DataRefused(self._refused)
        self._prompts.flush()
        os.fsync(self._prompts.fileno())
        return self._train.close(), self._validation.close()

    def _sides(self, path: Path, items: Sequence[Item]) -> Sides:
        """The first pass: the check of every row, and the side of each good one."""
        kept = self._work / SIDES
        if kept.is_file():
            self._meter.end_pass(path.stat().st_size)
            return np.fromfile(kept, np.uint8)
        screen, classes = self._policy.screen, Classes()
        with Screening(screen, items, self._work) as screening:
            for row, conversation in self._rows(path):
                classes.add(conversation)
                self._note(screening.add(row, conversation))
            self._note(screening.flush())
            self._refuse_errors()
            clusters, used = screening.clusters(), screening.used()
        fraction = self._policy.validation_fraction_ppm
        sides = split(clusters, used, classes.rows(), fraction, self._policy.seed)
        write_whole(kept, sides.tobytes())
        return sides

    def _given(self, path: Path, sides: Sides) -> Iterator[Given]:
        for side, (row, conversation) in zip(sides.tolist(), self._rows(path), strict=True):
            if side != LEFT_OUT:
                yield self._one(row, conversation, validates=side == VALIDATE)

    def _one(self, row: Row, conversation: Conversation, *, validates: bool) -> Given:
        return Given(row, scrubbed(conversation, self._policy.screen), validates)

    def _rows(self, path: Path) -> Iterator[tuple[Row, Conversation]]:
        checker = Checker()
        with open_rows(path) as rows:
            for done, item in enumerate(checker.conversations(rows)):
                if done % PROGRESS_ROWS == 0:
                    self._meter.at(rows.bytes_read)
                yield item
            self._meter.end_pass(rows.bytes_read)
        if checker.dialect is not None and checker.dialect not in TRAINABLE:
            self._refused.add(Note("not_trainable", detail=checker.dialect).at(None, None))
        if (wrong := misused(self._policy.length_policy, checker.dialect)) is not None:
            self._refused.add(wrong.at(None, None))
        self._note(checker.findings.of("error"))

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if CATALOGUE[finding.code].severity == "error":
                self._refused.add(finding)

    def _refuse_errors(self) -> None:
        if self._refused.count("error"):
            raise DataRefused(self._refused)

    def _sink(self, sequences: Sequence[Tokenised]) -> None:
        for it in sequences:
            (self._validation if it.validates else self._train).add(it.documents, cut=it.cut)
            self._prompts.write(it.prompt)


class _Sink:
    """Sequences of one shard, packed a window at a time."""

    def __init__(self, writer: ShardWriter, max_length: int) -> None:
        self.writer = writer
        self.rows = 0
        self._max_length = max_length
        self._window: list[Document] = []
        self._window_tokens = self._truncated = self._longest = 0

    def add(self, documents: Sequence[Document], *, cut: bool) -> None:
        """One row of the file."""
        self.rows += 1
        self._truncated += cut
        lengths = [len(document.mask) for document in documents]
        self._longest = max(self._longest, *lengths)
        self._window += documents
        self._window_tokens += sum(lengths)
        if len(self._window) >= PACK_WINDOW_ROWS or self._window_tokens >= PACK_WINDOW_TOKENS:
            self._pack()

    def close(self) -> Side:
        self._pack()
        self.writer.close()
        return Side(
            rows=self.rows,
            sequences=self.writer.sequences,
            packed_rows=self.writer.rows,
            tokens=self.writer.tokens,
            trainable_tokens=self.writer.trainable_tokens,
            truncated=self._truncated,
            longest=self._longest,
        )

    def _pack(self) -> None:
        window, self._window, self._window_tokens = self._window, [], 0
        for row in pack([len(document.mask) for document in window], self._max_length).rows():
            self.writer.add_row([window[number] for number in row])


def _place(finding: Finding) -> str:
    where = "file" if finding.row is None else f"row {finding.row}"
    return f"{where}{finding.pointer and f' {finding.pointer}'}: {finding.message} ({finding.code})"


def _sha256(items: Sequence[Item]) -> str:
    return hashlib.sha256(msgspec.json.encode(items)).hexdigest()


def _fact(path: Path) -> FileFact:
    return FileFact(file_sha256(path), path.stat().st_size)


@contextmanager
def _work_directory(folder: Path, key: str) -> Iterator[Path]:
    """A place for what is half done. It stays when the process is killed; other keys' go."""
    work = folder / key
    for other in folder.iterdir() if folder.is_dir() else ():
        if other != work:
            shutil.rmtree(other, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _publish(made: Path, final: Path) -> None:
    """Complete or not at all, through to the disk."""
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.rmtree(final)
    made.rename(final)
    _sync_directory(final.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
