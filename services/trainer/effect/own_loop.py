"""The train role of a session: `python -m tunery.ml.train` on commands, instead of on rows.

The commands of a session are on its journal, their bodies in object storage. The process gets them
in order from the checkpoint that it has begun with; what only answers is not done a second time.
"""

import asyncio
import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from schemas.session import (
    CHANGING,
    SESSIONS,
    AnswerCommand,
    SessionCommand,
)
from schemas.topics import SESSION
from schemas.training import AttemptStart, TrainWork
from schemas.units import Ms
from services.trainer.domain.command_feed import CommandFeed
from services.trainer.domain.state import Grant
from services.trainer.effect.environment import accelerators, devices_of_ranks
from services.trainer.effect.program import Tools, retry_while_unavailable
from services.trainer.effect.reports import send_until_logged
from services.trainer.effect.training import Training
from services.trainer.settings import TrainerSettings
from tunery.confinement.taking import below
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import START, JournalReader, Position
from tunery.runtime.journal.snapshots import SnapshotReader
from tunery.runtime.tasks import KeptTask
from tunery.work.events import AnyWorkEvent, CommandDone, SessionWaits, Started
from tunery.work.session import END, HandedCommand, SessionSpec, encode_body, hand_over
from tunery.work.spec import CHECKPOINTS_KEPT_MIN, Hyper, TrainSpec

READ_WAIT_MS: Final[Ms] = 1_000
RECONNECT_MS: Final[Ms] = 500
COMMANDS: Final = "commands"
WEIGHTS: Final = "weights"
SAVED_AGAIN_MS: Final[Ms] = 60_000  # between reports of an idle session that it is saved
HANDED_MAX: Final = 64  # commands in the folder of the lease: 64 MB at most
READ_AT_ONCE_MAX: Final = 10_000  # records of a journal that are read in less than a second
WEIGHTS_KEPT: Final = 8  # newest folders of fetched weights that no command waits for


class KnownSession(Struct, frozen=True):
    """A session in the scheduler's snapshots; agents read no more than that it is there."""


class OwnLoop(Training):
    """Program of a lease whose process takes commands."""

    def __init__(
        self, grant: Grant, work: TrainWork, tools: Tools, settings: TrainerSettings
    ) -> None:
        super().__init__(grant, work, tools, settings)
        self._feed = CommandFeed(grant.attempt)  # its commands are those not handed over yet
        # folder of fetched weights, the last used one at the end → commands that wait for it
        self._fetched: dict[Path, set[str]] = {}
        self._next_seq = 1
        self._handed = self._stored = 0
        self._handed_ms: dict[str, tuple[str, Ms]] = {}  # commands without an answer: kind, when
        self._unanswered = asyncio.Semaphore(HANDED_MAX)
        self._has_begun = asyncio.Event()
        self._has_ended = False
        self._following: KeptTask[None] | None = None

    async def write_inputs(self, folder: Path) -> SessionSpec:
        """Fetch the newest checkpoint. Raises as `Program.prepare` does."""
        work = self._work
        candidate = await self._newest_checkpoint(folder)
        commands = folder / COMMANDS
        commands.mkdir(mode=0o700)
        # while the process loads its model
        self._following = KeptTask(self._follow, "commands of a session", is_watched=False)
        training = TrainSpec(
            base_dir=work.base_path,
            base_id=work.base_id,
            base_sha256=work.base_sha256,
            train_shards=(),
            out_dir=str(folder / "out"),
            resume=(candidate,) if candidate else (),
            hyper=Hyper.from_log(work.hyper),
            precision=work.hyper.precision,
            threads=work.hyper.threads or self.settings.threads,
            accelerators=accelerators(self.grant),
            checkpoint_every_steps=work.hyper.checkpoint_every_steps,
            checkpoint_every_ms=work.hyper.checkpoint_every_ms,
            keep_checkpoints=max(CHECKPOINTS_KEPT_MIN, work.hyper.keep_checkpoints),
            devices=devices_of_ranks(self.grant, self.tools.device_names),
        )
        return SessionSpec(training=training, commands_dir=str(commands))

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """Hand commands over once the process has begun, and report its answers.

        Raises BlobMissing, BlobCorrupt, BlobsUnavailable, OSError.
        """
        if self._following is not None and self._following.ended.done():
            self._following.ended.result()  # why it could not hand over the next command
        if isinstance(event, CommandDone):
            await self._report_answer(event)
            return None
        if isinstance(event, SessionWaits):
            self._meter.wait(self._lease, self._now_ms())
            if event.saved:
                await self._report_saved()
            return None
        if isinstance(event, Started):
            self._next_seq = event.resumed_from_step + 1
            self._has_begun.set()
        return await super().handle(event)

    async def _report_saved(self) -> None:
        """Report that the newest checkpoint has all that the session has done until now.

        What waits for its client would otherwise seem to lose more with each minute, and could not
        be stopped for others.
        """
        if self._newest is None:
            return
        now_ms = self.tools.runtime.clock.monotonic_ms() - self._started_monotonic_ms
        if now_ms - self._newest.captured_ms >= SAVED_AGAIN_MS:
            await self._report_checkpoint(replace(self._newest, captured_ms=now_ms))

    async def close(self) -> None:
        """Stop handing commands over."""
        if self._following is not None:
            await self._following.stop()
        await super().close()

    async def _follow(self) -> None:
        """Read the session's journal, and hand its commands over as they come."""
        partition = partition_of(self.grant.job_id.encode())
        position = await self._beginning(partition)
        while True:
            reader = JournalReader(self.tools.runtime.log, SESSION, {partition: position})
            try:
                await reader.open()
                while True:
                    for batch in (await reader.read(READ_WAIT_MS)).values():
                        for accepted in batch.accepted:
                            if accepted.entry.key == self.grant.job_id:
                                self._feed.fold(accepted.events)
                    position = reader.positions[partition]
                    # what is answered is known by then
                    if reader.caught_up(partition) and self._feed.is_leased:
                        await self._has_begun.wait()
                        await self._hand_over()
            except Unavailable:
                position = reader.positions[partition]
                await self.tools.runtime.clock.sleep(RECONNECT_MS)
            finally:
                await reader.close()

    async def _beginning(self, partition: int) -> Position:
        """Return a position before the session: of a snapshot that does not know it, where that
        saves much.

        Raises nothing of its own.
        """
        runtime = self.tools.runtime
        with suppress(Unavailable):
            _, end = await runtime.log.bounds(SESSION.journal.name, partition)
            if end > READ_AT_ONCE_MAX:
                none = Map[str, KnownSession]()
                snapshots = SnapshotReader(
                    runtime, SESSION, Map[str, KnownSession], none, partition
                )
                known = await snapshots.load(wanted=lambda state: self.grant.job_id not in state)
                return known.position
        return START

    async def _hand_over(self) -> None:
        """Hand over all commands whose turn it is. Raises as `handle` does."""
        while (command := self._feed.commands.get(str(self._next_seq))) is not None:
            del self._feed.commands[command.name]
            self._next_seq += 1
            if command.kind in CHANGING or command.name not in self._feed.answered:
                await self._hand(command)
        for command in list(self._feed.commands.values()):
            if command.sampler or command.seq < self._next_seq:  # others wait for one before them
                del self._feed.commands[command.name]
                if command.sampler and command.name not in self._feed.answered:
                    await self._hand(command)
        if self._feed.is_ending and not self._has_ended:
            self._has_ended = True
            self._put(END)

    async def _hand(self, command: SessionCommand) -> None:
        await self._unanswered.acquire()  # an answer gives it back
        runtime, content = self.tools.runtime, command.body
        body = await retry_while_unavailable(
            runtime.clock, lambda: runtime.blobs.get(content.blob, sha256=content.sha256)
        )
        folder = await self._fetch_weights(command)
        handed = HandedCommand(
            name=command.name,
            seq=command.seq,
            kind=command.kind,
            body=body,
            tokens=command.tokens,
            sampler=command.sampler,
            weights_dir=folder,
            stored=self._stored,
        )
        self._handed_ms[command.name] = command.kind, runtime.clock.monotonic_ms()
        self._put(encode_body(handed))

    def _put(self, content: bytes) -> None:
        self._handed += 1
        hand_over(self.folder / COMMANDS, self._handed, content)

    async def _fetch_weights(self, command: SessionCommand) -> str:
        """Fetch the weights that a command begins with; empty: those that are trained."""
        if not command.weights:
            return ""
        # all files count: those of settings are the same in everything that the session saves
        hashes = " ".join(file.sha256 for file in command.weights)
        folder = self.folder / WEIGHTS / hashlib.sha256(hashes.encode()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        for file in command.weights:
            path = below(folder, file.name)
            if not path.exists():
                await self.fetch(file.blob, path, file.sha256)
        self._fetched[folder] = self._fetched.pop(folder, set()) | {command.name}
        unused = [each for each, waiting in self._fetched.items() if not waiting]
        for old in unused[:-WEIGHTS_KEPT]:
            del self._fetched[old]
            await asyncio.to_thread(shutil.rmtree, old)
        return str(folder)

    async def _report_answer(self, event: CommandDone) -> None:
        """Store an answer and what was saved, and tell the session. The first answer counts.

        Its files stay until the process hears of it: what that has written is its own to remove.
        """
        for waiting in self._fetched.values():
            waiting.discard(event.name)
        if event.name not in self._feed.answered:  # before this attempt
            await self._send_answer(event)
        self._stored += 1
        if (handed := self._handed_ms.pop(event.name, None)) is not None:
            self._unanswered.release()
            kind, handed_ms = handed
            took_ms = self.tools.runtime.clock.monotonic_ms() - handed_ms
            self._meter.answer(self._lease, kind, took_ms, self._now_ms(), failed=event.failed)

    async def _send_answer(self, event: CommandDone) -> None:
        answer = await self.upload(SESSIONS, Path(event.dir), event.answer)
        folder = Path(event.saved_dir)
        saved = [await self.upload(SESSIONS, folder, file) for file in event.saved]
        grant = self.grant
        reported = AnswerCommand(
            attempt=grant.attempt,
            name=event.name,
            answer=answer,
            failed=event.failed,
            saved=tuple(saved),
            sampled=event.sampled,
        )
        runtime = self.tools.runtime
        await send_until_logged(runtime, SESSION, grant.job_id, grant.tenant, reported)
