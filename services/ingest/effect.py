"""Validate a file, prepare a data set, erase what is deleted. Rows are read by the workbench."""

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from schemas import errors
from schemas.dataset import (
    BaseTokens,
    FileRegistered,
    PreparationDue,
    Prepared,
    RecordPrepared,
    RecordValidation,
    Validation,
)
from schemas.envelope import Message
from services.ingest.ports import Checked, LocalBase, Packed, Workbench, WorkRefused
from services.ingest.project import ERASE, PREPARE, VALIDATE, EraseBlob
from services.ingest.scratch import named_folder, new_folder
from tunery.runtime.blobs.abstract import Blobs, Stored, blob_key
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, Send

LOG: Final = logging.getLogger("tunery.ingest")
LEASE_MS: Final = 120_000  # renewed while the work goes on
TRIES_MAX: Final = 3
ERASE_TRIES_MAX: Final = 100
Bases = Callable[[], Awaitable[tuple[LocalBase, ...]]]


def validate(
    blobs: Blobs, workbench: Workbench, bases: Bases, room: Path, concurrency: int
) -> Effect[FileRegistered]:
    """Check every row, count tokens under every base, keep the report as a blob."""

    async def run(file: FileRegistered, tenant: str, _: int = 1) -> Send:
        async with _folder(room) as folder:
            path = folder / "rows"
            await blobs.get_file(file.blob, path, sha256=file.sha256)
            checked = await workbench.check(path, await bases(), file.rows_max)
        for why in checked.unusable:
            log_event(LOG, logging.WARNING, "base cannot count", file=file.file_id, why=why)
        validation = _validation(checked, await _report(blobs, tenant, checked))
        return _send(tenant, RecordValidation(file_id=file.file_id, validation=validation))

    def exhausted(file: FileRegistered, tenant: str, failure: str) -> Send:
        message = f"The file could not be checked: {failure}. Upload it again to retry."
        record = RecordValidation(file_id=file.file_id, validation=None, failure=message)
        return _send(tenant, record)

    return Effect(
        kind=VALIDATE,
        body=FileRegistered,
        run=run,
        exhausted=exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=concurrency,
        tries_max=TRIES_MAX,
    )


def prepare(
    blobs: Blobs, workbench: Workbench, bases: Bases, room: Path, concurrency: int
) -> Effect[PreparationDue]:
    """Split, tokenise and pack once; the cache's files are named by their content."""

    async def run(due: PreparationDue, tenant: str, _: int = 1) -> Send:
        base = _base_of(due, await bases())
        if base is None:
            failure = (
                f"Base model {due.spec.base_id!r} with SHA-256 {due.spec.base_sha256} "
                "is not registered here (any more). Submit the job again."
            )
            return _failed(due, tenant, errors.UNKNOWN_BASE, failure)
        async with _folder(room) as folder:
            training, validation = await _fetch(blobs, due, folder)
            out, work = folder / "prepared", named_folder(room, due.prepare_id)
            try:
                packed = await workbench.prepare(training, validation, base, due.spec, out, work)
            except WorkRefused as error:
                return _failed(due, tenant, errors.FILE_REJECTED, str(error))
            made = await _store(blobs, tenant, packed)
        record = RecordPrepared(prepare_id=due.prepare_id, prepared=made)
        return _send(tenant, record)

    def exhausted(due: PreparationDue, tenant: str, failure: str) -> Send:
        message = f"The data set could not be prepared: {failure}."
        return _failed(due, tenant, errors.PLATFORM, message)

    return Effect(
        kind=PREPARE,
        body=PreparationDue,
        run=run,
        exhausted=exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=concurrency,
        tries_max=TRIES_MAX,
    )


def erase(blobs: Blobs) -> Effect[EraseBlob]:
    """Remove one stored object of a deleted file; nobody waits for the outcome."""

    async def run(row: EraseBlob, tenant: str, _: int = 1) -> None:
        await blobs.delete(row.blob)

    def exhausted(row: EraseBlob, tenant: str, failure: str) -> None:
        return None

    return Effect(
        kind=ERASE,
        body=EraseBlob,
        run=run,
        exhausted=exhausted,
        tries_max=ERASE_TRIES_MAX,
    )


@asynccontextmanager
async def _folder(room: Path) -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(new_folder, room)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _fetch(blobs: Blobs, due: PreparationDue, folder: Path) -> tuple[Path, Path | None]:
    training = folder / "training"
    await blobs.get_file(due.training_blob, training, sha256=due.training_sha256)
    if due.validation_blob is None:
        return training, None
    validation = folder / "validation"
    await blobs.get_file(due.validation_blob, validation, sha256=due.validation_sha256)
    return training, validation


def _base_of(due: PreparationDue, bases: tuple[LocalBase, ...]) -> LocalBase | None:
    wanted = (due.spec.base_id, due.spec.base_sha256)
    return next((base for base in bases if (base.base_id, base.sha256) == wanted), None)


async def _report(blobs: Blobs, tenant: str, checked: Checked) -> str:
    data = checked.report.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    return (await blobs.put(blob_key(tenant, "reports", sha256, ".json"), data)).key


def _validation(checked: Checked, report_blob: str) -> Validation:
    return Validation(
        accepted=checked.accepted,
        dialect=checked.dialect,
        rows=checked.rows,
        errors=checked.errors,
        warnings=checked.warnings,
        tokens=tuple(
            BaseTokens(
                base_id=found.base_id,
                base_sha256=found.base_sha256,
                tokens=found.tokens,
                trainable_tokens=found.trainable_tokens,
                longest_row_tokens=found.longest_row_tokens,
                plans=found.plans,
            )
            for found in checked.counted
        ),
        report_blob=report_blob,
        code=checked.code,
        message=checked.message,
    )


async def _store(blobs: Blobs, tenant: str, packed: Packed) -> Prepared:
    train = await _keep(blobs, tenant, Path(packed.train))
    validation = await _keep(blobs, tenant, Path(packed.validation))
    prompts = await _keep(blobs, tenant, Path(packed.prompts))
    return Prepared(
        version=packed.version,
        train_blob=train.key,
        train_sha256=train.sha256,
        validation_blob=validation.key,
        validation_sha256=validation.sha256,
        prompts_blob=prompts.key,
        prompts_sha256=prompts.sha256,
        train_rows=packed.train_rows,
        validation_rows=packed.validation_rows,
        packed_rows=packed.packed_rows,
        tokens=packed.tokens,
        trainable_tokens=packed.trainable_tokens,
    )


async def _keep(blobs: Blobs, tenant: str, path: Path) -> Stored:
    sha256 = await asyncio.to_thread(_sha256, path)
    key = blob_key(tenant, "prepared", sha256, path.suffix)
    return await blobs.put_file(key, path, sha256=sha256)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _failed(due: PreparationDue, tenant: str, code: str, failure: str) -> Send:
    record = RecordPrepared(prepare_id=due.prepare_id, prepared=None, failure=failure, code=code)
    return _send(tenant, record)


def _send(tenant: str, body: Message) -> Send:
    return Send("dataset", tenant, tenant, body)
