"""Reads the telemetry topic into the table `steps`; rows and position are committed together."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from schemas.telemetry import LogLine, Progress, Step, Telemetry
from schemas.topics import PARTITIONS, TELEMETRY
from schemas.units import Ms
from services.gateway.jobs.event_ids import finite, line_id, step_event_id
from services.gateway.jobs.tables import LINES, STEPS, LogLineRow, StepRow
from tunery.runtime.bus.abstract import OutOfRange, Record
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import Position
from tunery.runtime.ports import Runtime
from tunery.runtime.store.abstract import CommitResult, RowBatch, Tables
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Upsert
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
NAME: Final = "telemetry"
POLL_MS: Final[Ms] = 500
RECORDS_MAX: Final = 1_000
LINE_CHARACTERS_MAX: Final = 2_000
STREAM_PARTITIONS: Final = tuple((NAME, partition) for partition in range(PARTITIONS))
# what an evaluation does, by the name that its process gives it
STAGES: Final[Mapping[str, str]] = {
    f"{kind}_{side}": f"{words} {whom}"
    for kind, words in (
        ("items", "general questions to the"),
        ("holdout", "validation rows of the"),
        ("measured", "own rows to the"),
        ("answers", "answers of the"),
    )
    for side, whom in (("base", "base model"), ("adapter", "adapter"))
}
VERSION: Final = 6  # 6: rewards of preferred answers
TABLES: Final = Tables(
    NAME,
    VERSION,
    STREAM_PARTITIONS,
    "\n".join((STEPS.ddl(), LINES.ddl())),
    (STEPS.name, LINES.name),
)
_DECODER: Final[msgspec.json.Decoder[Telemetry]] = msgspec.json.Decoder(Telemetry)


class TelemetryReader:
    """Implements `Host`. Records that cannot be decoded are skipped."""

    name = "telemetry reader"

    def __init__(self, runtime: Runtime) -> None:
        self._log, self._store = runtime.log, runtime.store
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Read until cancelled; starts again when another process has committed first."""
        await self._store.ensure(TABLES)
        while True:
            offsets = await self._offsets()
            reader = await self._log.reader(TELEMETRY.name, offsets)
            self._ready.set()
            try:
                while True:
                    beat("waiting")
                    records = await reader.poll(POLL_MS, RECORDS_MAX)
                    if not await self._commit(offsets, records):
                        break
            except OutOfRange as gone:
                log_event(LOG, logging.WARNING, "telemetry.records_expired", why=gone)
            finally:
                await reader.close()

    async def _offsets(self) -> dict[int, int]:
        """Saved positions, moved to the oldest records that the topic still has after a week."""
        saved = await self._store.positions(NAME)
        offsets = {}
        for partition in range(PARTITIONS):
            start, end = await self._log.bounds(TELEMETRY.name, partition)
            offset = saved[NAME, partition].position.offset
            within = start <= offset <= end
            offsets[partition] = offset if within else start
            if not within:
                await self._move(partition, offset, start)
        return offsets

    async def _move(self, partition: int, before: int, after: int) -> None:
        await self._store.commit(_batch(partition, before, after, ()))

    async def _commit(self, offsets: dict[int, int], records: Sequence[Record]) -> bool:
        """Commit a batch; False when another process was first and positions must be read again."""
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for partition, of_partition in sorted(by_partition.items()):
            after = of_partition[-1].offset + 1
            changes = [change for record in of_partition for change in changes_of(record)]
            batch = _batch(partition, offsets[partition], after, changes)
            beat("working")
            if await self._store.commit(batch) is CommitResult.STALE:
                return False
            offsets[partition] = after
        return True


def _batch(partition: int, before: int, after: int, changes: Sequence[Upsert]) -> RowBatch:
    """Rows of a batch, and the notices to followers of its jobs."""
    jobs = {f"{change.key['tenant']}/{change.key['job_id']}" for change in changes}
    return RowBatch(
        projection=NAME,
        version=VERSION,
        partition=(NAME, partition),
        expected=before,
        position=Position(after),
        changes=changes,
        notices=sorted(jobs),
    )


def changes_of(record: Record) -> tuple[Upsert, ...]:
    """Rows of one record. A step that a resumed attempt repeats replaces the earlier row."""
    try:
        message = _DECODER.decode(record.value)
    except MALFORMED as error:
        position = f"{record.partition}/{record.offset}"
        log_event(LOG, logging.WARNING, "telemetry.record_skipped", why=error, position=position)
        return ()
    match message:
        case LogLine():
            return (_line(record, message, message.level, message.text),)
        case Progress():
            stage = STAGES.get(message.stage, message.stage)
            text = f"evaluation: {stage}, {message.done_ppm / 10_000:.0f} %"
            return (_line(record, message, "info", text),)
        case Step():
            return (_step(record, message),)


def _line(record: Record, message: LogLine | Progress, level: str, text: str) -> Upsert:
    return LINES.insert(
        LogLineRow(
            tenant=message.tenant,
            job_id=message.job_id,
            id=line_id(record.timestamp, record.partition, record.offset),
            at=record.timestamp,
            attempt=message.attempt,
            level=level,
            message=text.replace("\0", "")[:LINE_CHARACTERS_MAX],
        )
    )


def _step(record: Record, step: Step) -> Upsert:
    return STEPS.insert(
        StepRow(
            tenant=step.tenant,
            job_id=step.job_id,
            step=step.step,
            id=step_event_id(record.timestamp, step.attempt, step.step),
            at=record.timestamp,
            attempt=step.attempt,
            total_steps=step.total_steps,
            loss=finite(step.loss),
            accuracy=finite(step.accuracy),
            valid_loss=finite(step.valid_loss),
            valid_accuracy=finite(step.valid_accuracy),
            learning_rate=finite(step.learning_rate),
            tokens=step.tokens,
            elapsed_ms=step.elapsed_ms,
            tokens_per_s=finite(step.tokens_per_s),
            memory_bytes=step.memory_bytes,
            reward_accuracy=finite(step.reward_accuracy),
            reward_margin=finite(step.reward_margin),
            reward=finite(step.reward),
            reward_std=finite(step.reward_std),
            valid_reward_accuracy=finite(step.valid_reward_accuracy),
        )
    )
