"""Publish a version: check the bytes that the gate judged, copy them to their final keys."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from schemas import errors
from schemas.model import RecordPublished, VersionSubmitted
from schemas.reasons import Failure, FailureCode, failing
from schemas.training import BlobFile
from services.registry.project import (
    ENDED_JOBS,
    ERASE,
    ERASE_WORK,
    JOB_FILES,
    PUBLISH,
    VERSION_JOBS,
    EraseModelFile,
    EraseVersionWork,
)
from tunery.platform.seal.model_names import with_shown_names
from tunery.platform.seal.sealer import Sealer
from tunery.provenance.envelopes import signed_bundle
from tunery.provenance.keys import SigningKey
from tunery.provenance.materials import bill_of_materials
from tunery.provenance.statements import (
    LINEAGE_STATEMENT,
    MATERIALS,
    SIGNATURE,
    files_statement,
    lineage_statement,
)
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.store.abstract import Store
from tunery.runtime.verbs import Effect, RetryLater, Send
from tunery.work.artifact import (
    CONFIG,
    CONFIG_BYTES_MAX,
    LINEAGE,
    PREFIX_BYTES,
    WEIGHTS,
    WEIGHTS_BYTES_MAX,
    WHOLE_CONFIG,
    WHOLE_WEIGHTS,
    Unpublishable,
    check_header,
    check_names,
    header_length,
    read_config,
    read_whole_config,
)

LEASE_MS: Final = 300_000
CONCURRENCY: Final = 2


def publish(blobs: Blobs, seal: Sealer, key: SigningKey | None = None) -> Effect[VersionSubmitted]:
    """Publish a version. Damaged or missing blobs are tried again; a wrong adapter is refused.

    key: signs it; None: it is not signed
    """

    async def run(version: VersionSubmitted, tenant: str, _: int = 1) -> Send:
        try:
            return _record(version, tenant, await _publish(blobs, seal, version, tenant, key), None)
        except Unpublishable as error:
            return _record(version, tenant, (), _failure("adapter_unpublishable", tenant, error))

    def exhausted(version: VersionSubmitted, tenant: str, failure: str) -> Send:
        return _record(version, tenant, (), _failure("publishing_failed", tenant, failure))

    def _failure(code: FailureCode, tenant: str, detail: object) -> Failure:
        sealed = seal.seal(tenant, str(detail), "detail")
        return Failure(code=errors.PLATFORM, reason=failing(code), detail=sealed)

    return Effect(
        kind=PUBLISH,
        body=VersionSubmitted,
        run=run,
        exhausted=exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=CONCURRENCY,
    )


def erase(blobs: Blobs) -> Effect[EraseModelFile]:
    """Erase one file of a deleted version. No command reports the result."""

    async def run(row: EraseModelFile, tenant: str, _: int = 1) -> None:
        await blobs.delete(row.blob)

    return Effect(kind=ERASE, body=EraseModelFile, run=run, unrecorded=True, tries_max=100)


def erase_work(blobs: Blobs, store: Store) -> Effect[EraseVersionWork]:
    """Erase what the jobs of a deleted version left, once they have ended. Checkpoints of a job
    that made no version, and those of other versions, stay.
    """

    async def run(row: EraseVersionWork, tenant: str, _: int = 1) -> None:
        where = {"tenant": tenant, "model_id": row.model_id}
        jobs = [job["job_id"] for job in await store.rows(VERSION_JOBS, where)]
        for job_id in jobs:
            of_job = {"tenant": tenant, "job_id": job_id}
            if not await store.rows(ENDED_JOBS, of_job):
                raise RetryLater(f"{job_id} has not ended as far as this service knows")
        for job_id in jobs:
            for file in await store.rows(JOB_FILES, {"tenant": tenant, "job_id": job_id}):
                await blobs.delete(file["blob"])

    return Effect(kind=ERASE_WORK, body=EraseVersionWork, run=run, unrecorded=True, tries_max=100)


def final_key(tenant: str, model_id: str, sha256: str, name: str) -> str:
    """Key of a published file."""
    return f"t/{tenant}/models/{model_id}/{sha256}/{name}"


async def _publish(
    blobs: Blobs, seal: Sealer, version: VersionSubmitted, tenant: str, key: SigningKey | None
) -> tuple[BlobFile, ...]:
    check_names(tuple(file.name for file in version.adapter))
    files = {file.name: file for file in version.adapter}
    if WHOLE_WEIGHTS in files:
        read_whole_config(await _small(blobs, files[WHOLE_CONFIG]))
        await _check_weights(blobs, files[WHOLE_WEIGHTS], None)
    else:
        config = await _check_config(blobs, files[CONFIG], version)
        await _check_weights(blobs, files[WEIGHTS], config)
    published = [await _copy(blobs, file, version, tenant) for file in version.adapter]
    shown = replace(version, terms=with_shown_names(seal, tenant, version.terms))
    records = {LINEAGE: _lineage(shown)}
    if key is not None:
        records |= _signed_records(shown, records[LINEAGE], key)
    for name, data in records.items():
        published.append(await _write(blobs, version, tenant, name, data))
    return tuple(published)


async def _check_config(
    blobs: Blobs, file: BlobFile, version: VersionSubmitted
) -> Mapping[str, Any]:
    """The adapter's configuration."""
    data = await _small(blobs, file)
    lineage = version.terms.lineage
    return read_config(data, lineage.base_id, lineage.base_sha256)


async def _small(blobs: Blobs, file: BlobFile) -> bytes:
    """A file that is read as a whole."""
    if file.bytes > CONFIG_BYTES_MAX:
        raise Unpublishable(f"{file.name} has more than {CONFIG_BYTES_MAX} bytes")
    return await blobs.get(file.blob, sha256=file.sha256)


async def _check_weights(blobs: Blobs, file: BlobFile, config: Mapping[str, Any] | None) -> None:
    size = await blobs.size(file.blob)
    if size != file.bytes or size > WEIGHTS_BYTES_MAX:
        raise Unpublishable(f"{file.name} has {size} bytes, {file.bytes} were reported")
    head = bytearray()
    wanted = PREFIX_BYTES
    async for chunk in blobs.stream(file.blob):
        head += chunk
        if len(head) >= PREFIX_BYTES:
            wanted = PREFIX_BYTES + header_length(bytes(head[:PREFIX_BYTES]), size)
        if len(head) >= wanted:
            break
    header_length(bytes(head[:PREFIX_BYTES]), size)
    check_header(bytes(head[PREFIX_BYTES:wanted]), size, config)


async def _copy(blobs: Blobs, file: BlobFile, version: VersionSubmitted, tenant: str) -> BlobFile:
    """Copy to the final key. It is named by content, so a second copy changes nothing.

    What an earlier try has left is written again: an inventory may have found that nobody names it.
    """
    key = final_key(tenant, version.terms.model_id, file.sha256, file.name)
    await blobs.put(key, blobs.stream(file.blob, sha256=file.sha256), sha256=file.sha256)
    return BlobFile(name=file.name, blob=key, sha256=file.sha256, bytes=file.bytes)


def _lineage(version: VersionSubmitted) -> bytes:
    document = {
        "model_id": version.terms.model_id,
        "series": version.terms.series,
        "lineage": msgspec.to_builtins(version.terms.lineage),
        "files": [
            {"name": file.name, "sha256": file.sha256, "bytes": file.bytes}
            for file in sorted(version.adapter, key=lambda file: file.name)
        ],
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _signed_records(version: VersionSubmitted, lineage: bytes, key: SigningKey) -> dict[str, bytes]:
    """The bill of materials, the signed lineage, and the signature over all files of a version."""
    terms = version.terms
    trained = {file.name: file.sha256 for file in version.adapter}
    records = {
        MATERIALS: bill_of_materials(terms, trained),
        LINEAGE_STATEMENT: signed_bundle(lineage_statement(terms, trained), key),
    }
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in records.items()}
    files = {**trained, LINEAGE: hashlib.sha256(lineage).hexdigest(), **hashes}
    return {**records, SIGNATURE: signed_bundle(files_statement(terms.model_id, files), key)}


async def _write(
    blobs: Blobs, version: VersionSubmitted, tenant: str, name: str, data: bytes
) -> BlobFile:
    sha256 = hashlib.sha256(data).hexdigest()
    key = final_key(tenant, version.terms.model_id, sha256, name)
    await blobs.put(key, data, sha256=sha256)
    return BlobFile(name=name, blob=key, sha256=sha256, bytes=len(data))


def _record(
    version: VersionSubmitted, tenant: str, files: tuple[BlobFile, ...], failure: Failure | None
) -> Send:
    command = RecordPublished(model_id=version.terms.model_id, files=files, failure=failure)
    return Send("model", tenant, tenant, command)
