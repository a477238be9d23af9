"""`tunery replay SESSION`: a session's commands once more, and its bill from the log.

The commands are run by the process that nodes run, on this machine. Every answer, everything that
was saved and the final adapter must have the hashes that the log has.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
from msgspec.structs import astuple

from schemas.access import schema_of
from schemas.erasure import JobsErased
from schemas.job import AttemptEnded, AttemptStarted, JobEnded, WorkDescribed
from schemas.pool import UsageCredited, UsageSliced
from schemas.session import (
    TOKEN_KINDS,
    CommandAnswered,
    CommandTaken,
    SessionCommand,
    SessionErased,
    SessionTokens,
)
from schemas.streams import Stream
from schemas.topics import JOB, POOL, SESSION
from schemas.training import BlobFile, TrainResult, TrainWork
from tunery.billing.sessions import session_words, sum_tokens, tokens_in
from tunery.cli._verification import VerifiedPart, open_servers
from tunery.cli.backup.surroundings import storage_settings
from tunery.cli.replay.verify import Verification
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.settings import key_folders
from tunery.plan.price import billed_lease
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.blobs.s3 import S3Blobs
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.runtime.blobs.abstract import BlobError, Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.reader import START, Accepted, read_record
from tunery.runtime.tools.verify import read_all
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import CommandDone, FileDigest, Finished, Started
from tunery.work.session import END, HandedCommand, SessionSpec, encode_body, hand_over
from tunery.work.spec import CHECKPOINTS_KEPT_MIN, Hyper, TrainSpec

NEVER: Final = 2**31  # steps or milliseconds until the next checkpoint: none is needed here
WEIGHTS: Final = ".safetensors"
ERASED: Final = "its commands and what it had saved were erased"
LEDGER: Final = """
SELECT coalesce(sum(gpu_ms), 0)::bigint AS gpu_ms, coalesce(sum(tokens), 0)::bigint AS tokens
FROM {}.ledger WHERE tenant = $1 AND job_id = $2
"""
TOKENS: Final = """
SELECT {} FROM {}.session_uses WHERE tenant = $1 AND session_id = $2
"""


@dataclass
class RecordedSession:
    """Facts of a session that the log has."""

    session_id: str
    tenant: str = ""
    commands: dict[str, SessionCommand] = field(default_factory=dict)  # by name
    answers: dict[str, CommandAnswered] = field(default_factory=dict)  # by name
    is_erased: bool = False
    pool: str = ""
    work: TrainWork | None = None
    environment: dict[str, str] = field(default_factory=dict)  # what it was computed with
    adapter: dict[str, str] = field(default_factory=dict)  # hashes of its weights at the end
    trained_tokens: int | None = None
    # gpu_ms, tokens: what was billed, less what was given back
    gpu_ms: int = 0
    tokens: int = 0

    def answered(self) -> Iterator[SessionCommand]:
        """Yield what was done: the model's own commands by number, then those of samplers."""
        done = (command for name, command in self.commands.items() if name in self.answers)
        yield from sorted(done, key=lambda command: (command.sampler, command.seq))

    def fold(self, events: tuple[Any, ...]) -> None:
        """Take in events of `session`, of its tenant's `job` and of its `pool`, in this order."""
        for event in events:
            match event:
                case CommandTaken(command=command):
                    self.commands[command.name] = command
                case CommandAnswered():
                    self.answers[event.name] = event
                case SessionErased() | JobsErased():
                    self.is_erased = True
                case UsageSliced() if billed_lease(event).job_id == self.session_id:
                    self.gpu_ms += event.billable_gpu_ms
                    self.tokens += event.tokens
                case UsageCredited() if billed_lease(event).job_id == self.session_id:
                    self.gpu_ms -= event.lost_gpu_ms
                    self.tokens -= event.lost_tokens
                case _ if getattr(event, "job_id", None) == self.session_id:
                    self._fold_job(event)
                case _:
                    pass

    def _fold_job(self, event: Any) -> None:
        match event:
            case WorkDescribed(pool=pool, description=description):
                if isinstance(description.work, TrainWork):
                    self.pool, self.work = pool, description.work
            case AttemptStarted(start=start) if not self.environment:
                self.environment = dict(start.environment)
            case AttemptEnded(end=end) if isinstance(end.result, TrainResult):
                self.adapter = _weights(end.result.adapter)
            case JobEnded():
                self.trained_tokens = event.trained_tokens
            case _:
                pass


async def run(folders: DataDir, session_id: str, base: Path | None) -> Verification:
    """Replay a session of the stack of `folders`, or of the servers that the environment names.

    base: folder of its base model; None: the path that nodes have it at
    Raises LocalError where there is no such session, or a server does not answer.
    """
    async with open_servers(folders) as (log, dsn), _open_blobs(folders) as blobs:
        recorded = await read_session(log, session_id)
        parts = await _billed(dsn, recorded)
        parts += await replay_commands(recorded, blobs, base)
    equal = all(part.difference is None and part.missing is None for part in parts)
    return Verification(equal=equal, records=len(recorded.commands), parts=tuple(parts))


async def read_session(log: Log, session_id: str) -> RecordedSession:
    """Read what the log has of a session. Raises LocalError where there is none."""
    recorded = RecordedSession(session_id)
    for accepted in await _entries(log, SESSION, session_id, session_id):
        recorded.tenant = accepted.entry.tenant
        recorded.fold(accepted.events)
    if not recorded.tenant:
        raise LocalError(f"the log has no session {session_id}", "see `tunery session list`")
    for accepted in await _entries(log, JOB, recorded.tenant, recorded.tenant):
        recorded.fold(accepted.events)
    for accepted in await _entries(log, POOL, recorded.pool, recorded.pool):
        recorded.fold(accepted.events)
    return recorded


async def _entries(log: Log, stream: Stream, partition_key: str, key: str) -> list[Accepted]:
    """Entries of one key that count. Raises Divergence, Unreadable, Unavailable."""
    position, codec, entries = START, codec_of(stream), list[Accepted]()
    for record in await read_all(log, stream.journal.name, partition_of(partition_key.encode())):
        judged = read_record(stream, codec, position, record)
        position = judged.position
        if judged.accepted is not None and judged.accepted.entry.key == key:
            entries.append(judged.accepted)
    return entries


@contextlib.asynccontextmanager
async def _open_blobs(folders: DataDir) -> AsyncIterator[Blobs]:
    keys, roots = key_folders(folders, os.environ)
    stored = S3Blobs(storage_settings(folders, os.environ))
    try:
        yield EncryptedBlobs(stored, TenantPathKeys(DirectoryKeyStore(keys, Roots(roots))))
    finally:
        await stored.close()


async def _billed(dsn: str, recorded: RecordedSession) -> list[VerifiedPart]:
    """Compare what the log bills and counts with the rows that invoices are made from."""
    session = recorded.tenant, recorded.session_id
    sums = ", ".join(f"coalesce(sum({kind}), 0)::bigint AS {kind}" for kind in TOKEN_KINDS)
    connection = await asyncpg.connect(dsn)
    try:
        (row,) = await connection.fetch(LEDGER.format(schema_of("billing")), *session)
        (tokens,) = await connection.fetch(TOKENS.format(sums, schema_of("gateway")), *session)
    finally:
        await connection.close()
    shown = tokens_in(dict(tokens))
    return [_compare_bill(recorded, row), compare_tokens(recorded, shown)]


def compare_tokens(recorded: RecordedSession, shown: SessionTokens) -> VerifiedPart:
    """Compare the tokens that the log has with those that invoices and `/v1/usage` show."""
    counted = sum_tokens(answer.tokens for answer in recorded.answers.values())
    difference = None
    if counted != shown:
        difference = f"the log has {session_words(counted)}; invoices {session_words(shown)}"
    count = sum(astuple(counted))
    return VerifiedPart(name="tokens by kind", count=count, unit="tokens", difference=difference)


def _compare_bill(recorded: RecordedSession, row: asyncpg.Record) -> VerifiedPart:
    replayed, ledger = (recorded.gpu_ms, recorded.tokens), (row["gpu_ms"], row["tokens"])
    difference = None
    if replayed != ledger:
        difference = "the log has {} GPU-ms and {} tokens, ".format(*replayed)
        difference += "the ledger {} and {}".format(*ledger)
    return VerifiedPart(name="bill", count=replayed[0], unit="GPU-ms", difference=difference)


async def replay_commands(
    recorded: RecordedSession, blobs: Blobs, base: Path | None
) -> list[VerifiedPart]:
    """Run all answered commands; return answers, saved weights and adapter as compared.

    Of a session whose content was erased nothing is run. Raises LocalError where the base model is
    not there.
    """
    if recorded.is_erased:
        count = len(recorded.answers)
        return [VerifiedPart(name="answers", count=count, unit="recorded", missing=ERASED)]
    if recorded.work is None:
        return []
    folder_of_base = base or Path(recorded.work.base_path)
    if not folder_of_base.is_dir():
        raise LocalError(f"there is no base model in {folder_of_base}", "name it with --base")
    with tempfile.TemporaryDirectory(prefix="tunery-replay-") as folder:
        compared = _Comparison(recorded, blobs, Path(folder))
        try:
            await compared.run(recorded.work, folder_of_base)
        except BlobError as error:
            compared.differ("adapter", f"a command cannot be read: {error}")
    return compared.parts()


class _Comparison:
    """A process that does the commands of a session, and what differs from its log."""

    def __init__(self, recorded: RecordedSession, blobs: Blobs, folder: Path) -> None:
        self._recorded, self._blobs, self._folder = recorded, blobs, folder
        self._counts = {"answers": 0, "saved weights": 0, "adapter": 0, "trained tokens": 0}
        self._differences: dict[str, str] = {}  # the first one of each part
        self._environment: dict[str, str] = {}

    def differ(self, part: str, text: str) -> None:
        """Note a difference."""
        changed = sorted(
            name
            for name, value in self._recorded.environment.items()
            if self._environment and self._environment.get(name, value) != value
        )
        if changed:
            text += f"; here it is computed with another {', '.join(changed)}"
        self._differences.setdefault(part, text)

    def parts(self) -> list[VerifiedPart]:
        """Return what was compared."""
        return [
            VerifiedPart(
                name=name, count=count, unit="compared", difference=self._differences.get(name)
            )
            for name, count in self._counts.items()
        ]

    async def run(self, work: TrainWork, base: Path) -> None:
        """Do all commands, one after the other. Raises BlobError, LocalError."""
        incoming = self._folder / "commands"
        incoming.mkdir(mode=0o700)
        spec = self._folder / "spec.json"
        spec.write_bytes(encode_spec(self._spec(work, base, incoming)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tunery.ml.train", str(spec)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,  # an event is a line
        )
        try:
            if process.stdout is not None:
                await self._follow(process.stdout, incoming)
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if status:
            self.differ("answers", f"the process ended with status {status}")

    def _spec(self, work: TrainWork, base: Path, incoming: Path) -> SessionSpec:
        environment = self._recorded.environment
        training = TrainSpec(
            base_dir=str(base),
            base_id=work.base_id,
            base_sha256=work.base_sha256,
            train_shards=(),
            out_dir=str(self._folder / "out"),
            hyper=Hyper.from_log(work.hyper),
            precision=work.hyper.precision,
            threads=int(environment.get("threads", work.hyper.threads or 1)),
            accelerators=int(environment.get("device", "cpu") != "cpu"),
            checkpoint_every_steps=NEVER,
            checkpoint_every_ms=NEVER,
            keep_checkpoints=CHECKPOINTS_KEPT_MIN,
        )
        return SessionSpec(training=training, commands_dir=str(incoming))

    async def _follow(self, output: asyncio.StreamReader, incoming: Path) -> None:
        """Hand each command over once the one before it is answered."""
        commands, number = self._recorded.answered(), 0
        async for line in output:
            event = decode_event(line)
            if isinstance(event, Started):
                self._environment = dict(event.environment)
            elif isinstance(event, CommandDone):
                self._compare(event)
            elif isinstance(event, Finished):
                self._compare_end(event)
            if isinstance(event, Started | CommandDone):
                command = next(commands, None)
                content = END if command is None else await self._handed(command, stored=number)
                number += 1
                hand_over(incoming, number, content)

    async def _handed(self, command: SessionCommand, stored: int) -> bytes:
        body = await self._blobs.get(command.body.blob, sha256=command.body.sha256)
        folder = ""
        if command.weights:
            folder = str(await self._fetch(command.weights))
        handed = HandedCommand(
            name=command.name,
            seq=command.seq,
            kind=command.kind,
            body=body,
            tokens=command.tokens,
            sampler=command.sampler,
            weights_dir=folder,
            stored=stored,
        )
        return encode_body(handed)

    async def _fetch(self, files: tuple[BlobFile, ...]) -> Path:
        folder = self._folder / "weights"
        folder.mkdir(exist_ok=True)
        for file in files:
            await self._blobs.get_file(file.blob, folder / file.name, sha256=file.sha256)
        return folder

    def _compare(self, done: CommandDone) -> None:
        command, answer = self._recorded.commands[done.name], self._recorded.answers[done.name]
        what = f"command {done.name} ({command.kind})"
        self._counts["answers"] += 1
        # words of a failure may name paths of a machine
        if done.failed != answer.failed or not (
            done.failed or done.answer.sha256 == answer.answer.sha256
        ):
            self.differ("answers", f"{what} has another answer")
        self._compare_weights("saved weights", what, _weights(answer.saved), _weights(done.saved))

    def _compare_end(self, finished: Finished) -> None:
        again = _weights(finished.files)
        self._compare_weights("adapter", "the session", self._recorded.adapter, again)
        recorded = self._recorded.trained_tokens
        if recorded is not None:
            self._counts["trained tokens"] += 1
            if recorded != finished.tokens:
                self.differ(
                    "trained tokens", f"the log has {recorded}, the replay {finished.tokens}"
                )

    def _compare_weights(
        self, part: str, what: str, recorded: dict[str, str], again: dict[str, str]
    ) -> None:
        for name, sha256 in recorded.items():
            self._counts[part] += 1
            if again.get(name) != sha256:
                self.differ(part, f"{what} saves another {name}")


def _weights(files: Iterable[BlobFile | FileDigest]) -> dict[str, str]:
    """Hashes of weights by name; files beside them may name a machine."""
    return {file.name: file.sha256 for file in files if file.name.endswith(WEIGHTS)}
