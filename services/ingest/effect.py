"""The effects of ingest: validate a file, prepare a dataset, erase deleted bytes and tenants."""

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    FileRegistered,
    PreparationDue,
    Prepared,
    RecordPrepared,
    RecordValidation,
    Validation,
    prepared_folder,
    report_folder,
)
from schemas.envelope import Message
from schemas.erasure import RecordErasedPart
from schemas.reasons import Failure, failing
from schemas.records import build_from
from schemas.units import Ms
from services.ingest.ports import CheckedFile, LocalBase, Workbench, WorkRefused
from services.ingest.project import (
    ERASE,
    ERASE_TENANT,
    PREPARE,
    VALIDATE,
    EraseFileBlob,
    EraseTenantBlobs,
)
from services.ingest.scratch import named_folder, new_folder
from tunery.confinement.taking import opened_within
from tunery.data.mixing import MixedSource
from tunery.data.preparing import PreparedDirectory
from tunery.platform.blobs.files import file_sha256
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.abstract import Blobs, Stored
from tunery.runtime.bus.sender import Sender
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import RETRIES, Effect, GoOnLater, RetryLater, Send
from tunery.work.own_chat import OwnChat

LOG: Final = logging.getLogger("tunery.ingest")
LEASE_MS: Final = 120_000  # renewed while the work goes on
TRIES_MAX: Final = 3
ERASE_TRIES_MAX: Final = 100
ERASE_TENANT_TRIES_MAX: Final = 1_000_000  # at most one a minute, until an operator has looked
Bases = Callable[[], Awaitable[tuple[LocalBase, ...]]]


@dataclass(frozen=True)
class Workers:
    """Limits on worker processes: in all, and for one tenant."""

    count: int
    of_tenant_max: int


def validate(
    blobs: Blobs, seal: Sealer, workbench: Workbench, bases: Bases, scratch: Path, workers: Workers
) -> Effect[FileRegistered]:
    """Check every row, count tokens under every base model, and store the report as a blob."""

    async def run(file: FileRegistered, tenant: str, _: int = 1) -> Send:
        async with _folder(scratch) as folder:
            path = folder / "rows"
            await blobs.get_file(file.content.blob, path, sha256=file.content.sha256)
            terms = file.terms
            checked = await workbench.check(
                path, await bases(), terms.rows_max, terms.niceness, tenant
            )
        for reason in checked.unusable:
            log_event(
                LOG,
                logging.WARNING,
                "base_model.unusable",
                tenant=tenant,
                file_id=file.file_id,
                reason=reason,
            )
        report_blob = await _store_report(blobs, report_folder(tenant, file.file_id), checked)
        validation = _validation(checked, file.file_id, report_blob)
        return _send(tenant, RecordValidation(file_id=file.file_id, validation=validation))

    def exhausted(file: FileRegistered, tenant: str, failure: str) -> Send:
        unchecked = Failure(
            code=errors.FILE_REJECTED,
            reason=failing("file_unchecked"),
            detail=seal.seal(tenant, failure, "detail"),
        )
        record = RecordValidation(file_id=file.file_id, validation=None, failure=unchecked)
        return _send(tenant, record)

    return Effect(
        kind=VALIDATE,
        body=FileRegistered,
        run=run,
        exhausted=exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=workers.count,
        of_tenant_max=workers.of_tenant_max,
        tries_max=TRIES_MAX,
    )


def prepare(
    blobs: Blobs, seal: Sealer, workbench: Workbench, bases: Bases, scratch: Path, workers: Workers
) -> Effect[PreparationDue]:
    """Split, tokenise and pack a dataset once; its files are named by their content."""

    async def run(due: PreparationDue, tenant: str, _: int = 1) -> Send:
        base = _base_of(due, await bases())
        if base is None:
            spec = due.spec
            gone = failing("base_unregistered", base_id=spec.base_id, sha256=spec.base_sha256)
            return _failed(due, tenant, Failure(code=errors.UNKNOWN_BASE, reason=gone))
        async with _folder(scratch) as folder:
            training, validation, mixture = await _fetch(blobs, due, folder)
            out, work = folder / "prepared", named_folder(scratch, due.prepare_id)
            try:
                chat = due.spec.chat
                directory = await workbench.prepare(
                    training,
                    validation,
                    base,
                    due.spec,
                    out,
                    work,
                    mixture,
                    None if chat is None else OwnChat.opened(chat, seal.open),
                )
            except WorkRefused as error:
                refused = Failure(
                    code=errors.FILE_REJECTED,
                    reason=failing("rows_unpreparable"),
                    detail=seal.seal(tenant, str(error), "detail"),
                )
                return _failed(due, tenant, refused)
            below = prepared_folder(tenant, due.prepare_id)
            prepared = await _store(blobs, below, directory, folder)
        record = RecordPrepared(prepare_id=due.prepare_id, prepared=prepared)
        return _send(tenant, record)

    def exhausted(due: PreparationDue, tenant: str, failure: str) -> Send:
        unprepared = Failure(
            code=errors.PLATFORM,
            reason=failing("preparation_failed"),
            detail=seal.seal(tenant, failure, "detail"),
        )
        return _failed(due, tenant, unprepared)

    return Effect(
        kind=PREPARE,
        body=PreparationDue,
        run=run,
        exhausted=exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=workers.count,
        of_tenant_max=workers.of_tenant_max,
        tries_max=TRIES_MAX,
    )


def erase(blobs: Blobs, work_ms: Ms = LEASE_MS) -> Effect[EraseFileBlob]:
    """Remove one stored object of a deleted file, or a folder. No command reports the result.

    A folder is emptied twice. Work that lost its row stores for a part of its lease before it
    notices, and ends without a report: `work_ms` later all of that is over. So much lies between
    the beginnings of two tries, also where the first one failed, or its process was killed.
    """

    async def run(row: EraseFileBlob, tenant: str, try_number: int = 1) -> None:
        if not row.blob.endswith("/"):
            await blobs.delete(row.blob, before=row.before)
            return
        await blobs.delete_below(row.blob)
        if try_number == 1:
            raise GoOnLater(work_ms, counts=True)

    return Effect(
        kind=ERASE,
        body=EraseFileBlob,
        run=run,
        unrecorded=True,
        row_lease_ms=work_ms,
        tries_max=ERASE_TRIES_MAX,
        delay_ms=lambda try_number: max(work_ms, RETRIES.delay_ms(try_number)),
    )


def erase_tenant(blobs: Blobs, sender: Sender) -> Effect[EraseTenantBlobs]:
    """Remove everything stored for a tenant but the exports of its bills, until nothing is left.

    No event ends the row, because the same tenant may be erased again after something late came;
    so the report is sent before the row goes, and repeated reports are dropped.
    """

    async def run(_: EraseTenantBlobs, tenant: str, __: int = 1) -> None:
        removed = await blobs.delete_below(f"t/{tenant}/", but=f"t/{tenant}/exports/")
        if removed:  # what is being written now is complete when it is looked for once more
            raise RetryLater(f"{removed} objects were removed; there may be more")
        await sender.send("account", tenant, tenant, RecordErasedPart(part="files"))

    return Effect(
        kind=ERASE_TENANT,
        body=EraseTenantBlobs,
        run=run,
        unrecorded=True,
        tries_max=ERASE_TENANT_TRIES_MAX,
    )


@asynccontextmanager
async def _folder(scratch: Path) -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(new_folder, scratch)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _fetch(
    blobs: Blobs, due: PreparationDue, folder: Path
) -> tuple[Path, Path | None, tuple[MixedSource, ...]]:
    """The training file, the one that validates, and those of the mixture."""
    training = folder / "training"
    await blobs.get_file(due.training_blob, training, sha256=due.training_sha256)
    mixture = []
    for at, mixed in enumerate(due.mixture):
        path = folder / f"mixed-{at:02}"
        await blobs.get_file(mixed.blob, path, sha256=mixed.sha256)
        mixture.append(MixedSource(path, mixed.weight_ppm))
    if due.validation_blob is None:
        return training, None, tuple(mixture)
    validation = folder / "validation"
    await blobs.get_file(due.validation_blob, validation, sha256=due.validation_sha256)
    return training, validation, tuple(mixture)


def _base_of(due: PreparationDue, bases: tuple[LocalBase, ...]) -> LocalBase | None:
    key = (due.spec.base_id, due.spec.base_sha256)
    return next((base for base in bases if (base.base_id, base.sha256) == key), None)


async def _store_report(blobs: Blobs, below: str, checked: CheckedFile) -> str:
    data = checked.report.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    return (await blobs.put(f"{below}{sha256}.json", data)).key


def _validation(checked: CheckedFile, file_id: str, report_blob: str) -> Validation:
    failure = checked.failure
    if failure is not None:  # the reason names the file, so that its words can say where to look
        reason = replace(failure.reason, params={**failure.reason.params, "file_id": file_id})
        failure = replace(failure, reason=reason)
    return build_from(Validation, checked, report_blob=report_blob, failure=failure)


async def _store(blobs: Blobs, below: str, directory: PreparedDirectory, folder: Path) -> Prepared:
    """Upload the files of a prepared directory below a folder, named by their content."""
    train = await _store_file(blobs, below, folder, directory.train_path)
    validation = await _store_file(blobs, below, folder, directory.validation_path)
    prompts = await _store_file(blobs, below, folder, directory.prompts_path)
    manifest = directory.manifest
    return Prepared(
        version=manifest.key,
        train_blob=train.key,
        train_sha256=train.sha256,
        validation_blob=validation.key,
        validation_sha256=validation.sha256,
        prompts_blob=prompts.key,
        prompts_sha256=prompts.sha256,
        train_rows=manifest.train.rows,
        validation_rows=manifest.validation.rows,
        packed_rows=manifest.train.packed_rows,
        tokens=manifest.train.tokens,
        trainable_tokens=manifest.train.trainable_tokens,
    )


async def _store_file(blobs: Blobs, below: str, folder: Path, path: Path) -> Stored:
    with opened_within(folder, path) as opened:
        sha256 = await asyncio.to_thread(file_sha256, opened)
        return await blobs.put_file(f"{below}{sha256}{path.suffix}", opened, sha256=sha256)


def _failed(due: PreparationDue, tenant: str, failure: Failure) -> Send:
    record = RecordPrepared(prepare_id=due.prepare_id, prepared=None, failure=failure)
    return _send(tenant, record)


def _send(tenant: str, body: Message) -> Send:
    return Send("dataset", tenant, tenant, body)
