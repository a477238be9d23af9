"""`prepare`: a checked file to the packed shards that a training run reads. Done once per key.

A prepared directory holds `train.safetensors`, `validation.safetensors` (see `shards`),
`validation.jsonl` (prompts with the wanted answer) and `manifest.json`, written last.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from tunery.data.checking import Checker
from tunery.data.dialects import TRAINABLE, Conversation
from tunery.data.duplicates import Tally, fingerprint
from tunery.data.findings import Collector, Finding, Note
from tunery.data.limits import (
    ENCODE_CHARS,
    ENCODE_ROWS,
    PACK_WINDOW_ROWS,
    PACK_WINDOW_TOKENS,
    PROGRESS_ROWS,
)
from tunery.data.packing import pack
from tunery.data.reading import open_rows
from tunery.data.rendering import Encoded, Rendered, Tokenizer
from tunery.data.rows import Row
from tunery.data.shards import Document, ShardWriter
from tunery.data.splitting import draw, threshold

LengthPolicy: TypeAlias = Literal["reject", "truncate"]
Progress: TypeAlias = Callable[[int, int], None]

# Raise it when the same input would give other bytes: keys change, old caches are left alone.
PIPELINE_VERSION: Final = 1
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
    packing: str = PACKING


class Side(Struct, frozen=True):
    """Sums of one shard; `longest` in tokens. `truncated` rows were cut to `max_length`."""

    rows: int
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
    progress: Progress | None = None,
) -> Prepared:
    """Render, tokenise, split and pack a file into `out_dir`, or find it there for the same key.

    With `validation_path` all rows of `path` train and the fraction is not used. `progress` gets
    bytes done and bytes to do. `out_dir` appears complete or not at all; one that holds another key
    or damaged files is replaced. Raises `DataRefused`, `BaseUnusable` and `OSError`.
    """
    tokenizer = Tokenizer.load(base_dir)
    fraction = 0 if validation_path is not None else validation_fraction_ppm
    policy = Policy(max_length, length_policy, fraction, seed)
    content = file_sha256(path)
    validation = None if validation_path is None else file_sha256(validation_path)
    key = cache_key(content, validation, tokenizer, policy)
    if (found := find(out_dir, key)) is not None:
        return found
    with _new_directory(out_dir) as directory:
        run = _Run(tokenizer, policy, directory, _Meter(path, validation_path, progress))
        with run:
            run.train_file(path)
            if validation_path is not None:
                run.validation_file(validation_path)
            train, held_out = run.finish()
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
            files=facts,
        )
        _write(directory / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
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
    """One preparation: two passes over the training file, one over a validation file."""

    def __init__(
        self, tokenizer: Tokenizer, policy: Policy, directory: Path, meter: _Meter
    ) -> None:
        self._tokenizer = tokenizer
        self._policy = policy
        self._meter = meter
        self._refused = Collector()
        self._prompts = (directory / FILES[2]).open("wb")
        self._train = _Sink(ShardWriter(directory / FILES[0]), policy.max_length)
        self._validation = _Sink(ShardWriter(directory / FILES[1]), policy.max_length)
        self._waiting: list[tuple[Row, Conversation, Rendered, bool]] = []
        self._waiting_chars = 0

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._prompts.close()
        self._train.writer.abandon()
        self._validation.writer.abandon()

    def train_file(self, path: Path) -> None:
        below = self._split(path)
        for row, conversation in self._rows(path):
            lot = draw(fingerprint(conversation), self._policy.seed)
            self._take(row, conversation, validates=lot < below)
        self._encode()

    def validation_file(self, path: Path) -> None:
        for row, conversation in self._rows(path):
            self._take(row, conversation, validates=True)
        self._encode()

    def finish(self) -> tuple[Side, Side]:
        """Close the files. Raises `DataRefused` when any row could not be used."""
        if self._refused.count("error"):
            raise DataRefused(self._refused)
        if not self._train.rows:
            self._refused.add(Note("empty_file").at(None, None))
            raise DataRefused(self._refused)
        self._prompts.flush()
        os.fsync(self._prompts.fileno())
        return self._train.close(), self._validation.close()

    def _split(self, path: Path) -> int:
        """The first pass: the lot below which rows validate. Also the check of every row."""
        lots = Tally()
        for _, conversation in self._rows(path):
            lots.add(draw(fingerprint(conversation), self._policy.seed))
        if self._refused.count("error"):
            raise DataRefused(self._refused)
        return threshold(lots, self._policy.validation_fraction_ppm)

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
        for finding in checker.findings.of("error"):
            self._refused.add(finding)

    def _take(self, row: Row, conversation: Conversation, *, validates: bool) -> None:
        rendered = self._tokenizer.render(conversation)
        if isinstance(rendered, Note):
            self._refuse(row, rendered)
            return
        self._waiting.append((row, conversation, rendered, validates))
        self._waiting_chars += len(rendered.text)
        if len(self._waiting) >= ENCODE_ROWS or self._waiting_chars >= ENCODE_CHARS:
            self._encode()

    def _encode(self) -> None:
        waiting, self._waiting, self._waiting_chars = self._waiting, [], 0
        encoded = self._tokenizer.encode([rendered for _, _, rendered, _ in waiting])
        for (row, conversation, _, validates), tokens in zip(waiting, encoded, strict=True):
            fitted = self._fit(row, tokens)
            if fitted is None:
                continue
            cut = len(fitted.ids) < len(tokens.ids)
            (self._validation if validates else self._train).add(fitted, cut=cut)
            if validates and not cut:
                self._prompts.write(_prompt(row, conversation, fitted))

    def _fit(self, row: Row, tokens: Encoded) -> Encoded | None:
        """The row within `max_length`, or None after saying why not."""
        limit = self._policy.max_length
        if len(tokens.ids) > limit:
            if self._policy.length_policy == "reject":
                detail = f"{len(tokens.ids)}, max_length is {limit}"
                self._refuse(row, Note("row_too_long", detail=detail))
                return None
            tokens = Encoded(tokens.ids[:limit], tokens.mask[:limit], tokens.rendered)
        if not tokens.trainable:
            self._refuse(row, Note("no_trainable_token"))
            return None
        return tokens

    def _refuse(self, row: Row, note: Note) -> None:
        self._refused.add(note.at(row.number, row.line))


class _Sink:
    """Sequences of one shard, packed a window at a time."""

    def __init__(self, writer: ShardWriter, max_length: int) -> None:
        self.writer = writer
        self.rows = 0
        self._max_length = max_length
        self._window: list[Document] = []
        self._window_tokens = self._truncated = self._longest = 0

    def add(self, tokens: Encoded, *, cut: bool) -> None:
        self.rows += 1
        self._truncated += cut
        self._longest = max(self._longest, len(tokens.ids))
        self._window.append(Document.of(tokens))
        self._window_tokens += len(tokens.ids)
        if len(self._window) >= PACK_WINDOW_ROWS or self._window_tokens >= PACK_WINDOW_TOKENS:
            self._pack()

    def close(self) -> Side:
        self._pack()
        self.writer.close()
        return Side(
            rows=self.rows,
            packed_rows=self.writer.rows,
            tokens=self.writer.tokens,
            trainable_tokens=self.writer.trainable_tokens,
            truncated=self._truncated,
            longest=self._longest,
        )

    def _pack(self) -> None:
        window, self._window, self._window_tokens = self._window, [], 0
        for row in pack([len(document.ids) for document in window], self._max_length).rows():
            self.writer.add_row([window[number] for number in row])


def _prompt(row: Row, conversation: Conversation, tokens: Encoded) -> bytes:
    """One line of `validation.jsonl`: the last learnt answer, and all that stands before it.

    `prompt_ids` are the prompt's token ids: encoding `prompt` again would read special tokens that
    people wrote as special.
    """
    last = max(i for i, trained in enumerate(conversation.trained) if trained)
    end = tokens.mask.rindex(1)
    start = tokens.mask.rfind(0, 0, end) + 1
    line = {
        "row": row.number,
        "prompt": tokens.rendered.text[: tokens.rendered.turn],
        "prompt_ids": tokens.ids[:start],
        "reference": conversation.messages[last]["content"].strip(),
    }
    return msgspec.json.encode(line) + b"\n"


def _place(finding: Finding) -> str:
    where = "file" if finding.row is None else f"row {finding.row}"
    return f"{where}{finding.pointer and f' {finding.pointer}'}: {finding.message} ({finding.code})"


def _fact(path: Path) -> FileFact:
    return FileFact(file_sha256(path), path.stat().st_size)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def _new_directory(final: Path) -> Iterator[Path]:
    """A directory that becomes `final` when the block ends well, and vanishes when it does not."""
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        yield partial
        if final.exists():
            shutil.rmtree(final)
        partial.chmod(0o755)
        partial.rename(final)
        _sync_directory(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
