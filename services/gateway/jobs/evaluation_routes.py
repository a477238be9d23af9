"""`/v1/models/import` and `/v1/models/{id}/gate`: adapters of elsewhere, and further gate runs."""

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from msgspec import structs
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from schemas.ids import JOB as JOB_PREFIX
from schemas.model import Base
from schemas.training import BlobFile
from services.gateway.deployments.serving import check_key
from services.gateway.files.multipart import UploadForm, boundary_of, multipart_body, receive_form
from services.gateway.files.routes import known_file
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.bodies import SUFFIX_MAX, EstimateRequest, Suffix
from services.gateway.jobs.domain.evaluations import (
    gate_run_spec,
    import_spec,
    settings_of,
)
from services.gateway.jobs.domain.resolve import Resolved, asked_benchmarks, installed_book
from services.gateway.jobs.domain.responses import JobResponse
from services.gateway.jobs.routes import current_job
from services.gateway.jobs.submission import UNDECIDED, Intent, Submissions, Submitted, intent_of
from services.gateway.models.base_folders import layers_of
from services.gateway.models.routes import find_base, find_version, look_at_base, unknown_base
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.jobs import JOBS
from services.gateway.views.tables.models import BASES
from services.gateway.web.deps import Caller, Principal
from services.gateway.web.domain.bodies import Body, Id
from services.gateway.web.domain.errors import INCOMPLETE, ApiError, invalid
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.plan.estimate import without_rows
from tunery.plan.price import lane_price
from tunery.runtime.blobs.abstract import PART_BYTES, BlobError, BlobUpload
from tunery.work.artifact import (
    CONFIG,
    CONFIG_BYTES_MAX,
    PREFIX_BYTES,
    WEIGHTS,
    WEIGHTS_BYTES_MAX,
    Unpublishable,
    check_header,
    header_length,
)
from tunery.work.foreign_adapters import canonical_settings, check_layers, refuse_pickle

BAD_ADAPTER: Final = "invalid_adapter"
HEADER_BYTES_MAX: Final = 1 << 20  # an adapter of all layers of a 70B model has a fifth of it
#: json holds the interpreter while it parses: one header at a time, outside of the event loop
HEADERS: Final = ThreadPoolExecutor(1, "adapter-header")
FORM: Final = multipart_body(
    {
        "model": {"type": "string", "description": "the base model that it is an adapter of"},
        "config": {"type": "string", "description": f"the text of its {CONFIG}"},
        "suffix": {"type": "string", "maxLength": SUFFIX_MAX},
        "validation_file": {
            "type": "string",
            "description": "rows of your own, on which the gate compares it with the base model",
        },
        "file": {
            "type": "string",
            "format": "binary",
            "description": f"its {WEIGHTS}; the fields come before it",
        },
    },
    required=("model", "config", "file"),
)
router = new_router("models")


class ImportedAs(Body):
    """The version that an adapter becomes; `model` is its base."""

    model: Id
    suffix: Suffix = None
    validation_file: Id | None = None


class ImportFields(ImportedAs):
    """The fields of the form."""

    config: str


class RepeatedRequest(Body):
    """Fields that identify a repeated request."""

    model: str
    sha256: str = ""
    suffix: str | None = None
    validation_file: str | None = None


@dataclass
class _WeightsHead:
    """The first bytes of a file of weights: they are checked before the others have arrived."""

    head: bytearray = field(default_factory=bytearray)
    size: int = 0
    is_complete: bool = False

    def add(self, chunk: bytes) -> None:
        """Raises Unpublishable as soon as it is clear that the file is none of safetensors."""
        self.size += len(chunk)
        if self.is_complete:
            return
        self.head += chunk
        if len(self.head) > PREFIX_BYTES:
            refuse_pickle(bytes(self.head[: PREFIX_BYTES + 1]))
            prefix = bytes(self.head[:PREFIX_BYTES])
            end = PREFIX_BYTES + header_length(prefix, WEIGHTS_BYTES_MAX, HEADER_BYTES_MAX)
            self.is_complete = len(self.head) >= end
            del self.head[end:]

    def header(self, config: dict[str, Any]) -> bytes:
        """The header of the whole file. Raises Unpublishable."""
        header_length(bytes(self.head[:PREFIX_BYTES]), self.size)
        header = bytes(self.head[PREFIX_BYTES:])
        check_header(header, self.size, config)
        return header


@router.post("/v1/models/import", status_code=201, openapi_extra=FORM)
async def import_adapter(
    request: Request,
    deps: WithJobDeps,
    caller: Caller,
    intent: Annotated[Intent, Depends(intent_of)],
) -> JobResponse:
    """Import a LoRA adapter that was trained elsewhere, as safetensors.

    The response is the job in which the gate compares it with its base model. Then it is a version
    like any other, the job's `fine_tuned_model`.
    """
    job_id = deps.fresh(JOB_PREFIX)
    folder = import_folder(caller.tenant, job_id)
    key = f"{folder}/{WEIGHTS}"
    upload = await within(deps.blobs.upload(key))
    try:
        form, head = await _receive(request, deps, upload)
        asked, settings, values = await _asked(deps, caller, form, head)
        stored = await within(upload.complete(), head.size)
    except BaseException:
        with suppress(BlobError):  # at worst an unused object remains: no command names it
            await within(upload.abort())
        raise
    digest = hashlib.sha256(settings).hexdigest()
    files = (
        BlobFile(name=WEIGHTS, blob=key, sha256=stored.sha256, bytes=stored.bytes),
        BlobFile(name=CONFIG, blob=f"{folder}/{CONFIG}", sha256=digest, bytes=len(settings)),
    )
    submissions: Submissions = request.app.state.submissions

    async def submit() -> Submitted:
        await within(deps.blobs.put(files[1].blob, settings, sha256=digest), len(settings))
        resolved = await resolve_import(submissions, caller, asked, settings_of(values), job_id)
        resolved = replace(resolved, spec=import_spec(resolved.spec, files))
        repeated = RepeatedRequest(
            model=asked.model,
            sha256=hashlib.sha256(f"{stored.sha256} {digest}".encode()).hexdigest(),
            suffix=asked.suffix,
            validation_file=asked.validation_file,
        )
        return await submissions.decide(caller, job_id, resolved, repeated, intent)

    return await job_of_import(deps, files, submit())


@router.post("/v1/models/{model_id:path}/gate", status_code=201)
async def run_gate(
    model_id: str,
    request: Request,
    deps: WithJobDeps,
    caller: Caller,
    intent: Annotated[Intent, Depends(intent_of)],
) -> JobResponse:
    """Let the gate judge a version again, with the files of its base model as they are now.

    The response is the job that evaluates it, without a training. Its verdict replaces the one
    before: what it blocks is in quarantine, and what was in quarantine for an earlier verdict is
    not any more. A version in a stage keeps that until people decide.
    """
    version = await find_version(deps, caller, model_id)
    lineage = version.lineage
    check_key(caller, lineage.base_id)
    await look_at_base(deps, caller, lineage.base_id)
    known = await deps.views.first(BASES, {"id": lineage.base_id})
    trained = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": lineage.job_id})
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    if known is None or trained is None or tenant is None:
        raise unknown_base(lineage.base_id)
    base = structs.replace(known.base, sha256=known.drifted_sha256 or known.base.sha256)
    book = installed_book(await deps.prices.book(tenant.price_version), tenant)
    price = lane_price(book, tenant.plan)
    submissions: Submissions = request.app.state.submissions
    known_benchmarks, policy = await submissions.gate_terms(caller.tenant, base)
    named = [asked.name for asked in trained.spec.benchmarks]
    benchmarks = asked_benchmarks(lineage.method, named, known_benchmarks, policy)
    spec = gate_run_spec(trained, version, base, price, benchmarks, policy)
    submitted = await submissions.decide(
        caller,
        deps.fresh(JOB_PREFIX),
        Resolved(spec, without_rows(base)),
        RepeatedRequest(model=version.id),
        intent,
    )
    return await current_job(deps, submitted.row)


def import_folder(tenant: str, job_id: str) -> str:
    """Return where the files of an import are, until they are those of a version."""
    return f"t/{tenant}/imports/{job_id}"


async def _receive(
    request: Request, deps: JobDeps, upload: BlobUpload
) -> tuple[UploadForm, _WeightsHead]:
    """Write the file of the form to storage. Raises ApiError 400 and 413."""
    head = _WeightsHead()

    async def write(chunk: bytes) -> None:
        head.add(chunk)
        await within(upload.write(chunk), PART_BYTES)

    boundary = boundary_of(request.headers.get("content-type"))
    try:
        form = await receive_form(
            boundary,
            request.stream(),
            write,
            deps.settings.file_bytes_max,
            field_bytes_max=CONFIG_BYTES_MAX,
        )
    except ClientDisconnect as error:
        raise ApiError(400, INCOMPLETE, "The connection ended before the file did.") from error
    except Unpublishable as error:
        raise invalid(str(error), "file", BAD_ADAPTER) from error
    return form, head


async def _asked(
    deps: JobDeps, caller: Principal, form: UploadForm, head: _WeightsHead
) -> tuple[ImportFields, bytes, dict[str, Any]]:
    """The fields of a form, and the settings of its adapter in canonical form.

    Raises ApiError 400 for what is wrong with either, or does not fit the base model.
    """
    if form.filename is None:
        raise invalid("is required", "file")
    try:
        asked = ImportFields(**form.fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid(first["msg"], str(first["loc"][0]), "invalid_value") from error
    base = await find_base(deps, asked.model)
    if base is None:
        raise unknown_base(asked.model)
    check_key(caller, base.base_id)
    if asked.validation_file is not None:
        await known_file(deps, caller, asked.validation_file)
    try:
        settings, values = canonical_settings(asked.config.encode(), base.base_id)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(HEADERS, _check_weights, head, values, base)
    except Unpublishable as error:
        raise invalid(str(error), "file", BAD_ADAPTER) from error
    return asked, settings, values


async def resolve_import(
    submissions: Submissions,
    caller: Principal,
    asked: ImportedAs,
    lora: dict[str, Any],
    job_id: str,
) -> Resolved:
    """A training of such an adapter on its validation rows: its name, price and nodes are those of
    the import. Raises ApiError.
    """
    body = EstimateRequest(
        model=asked.model,
        training_file=asked.validation_file,
        validation_file=asked.validation_file,
        suffix=asked.suffix,
        lora=lora,
    )
    resolved = await submissions.resolve(caller, body, job_id)
    if asked.validation_file is not None:
        return resolved
    return Resolved(resolved.spec, without_rows(resolved.spec.base))


async def job_of_import(
    deps: JobDeps, files: Iterable[BlobFile], submitting: Awaitable[Submitted]
) -> JobResponse:
    """Await the submission of an import; files that no new job refers to are erased.

    Raises ApiError.
    """
    try:
        submitted = await submitting
    except ApiError as refusal:
        if refusal.status < UNDECIDED:
            await _erase(deps, files)
        raise
    if submitted.replayed:
        await _erase(deps, files)
    return await current_job(deps, submitted.row)


async def _erase(deps: JobDeps, files: Iterable[BlobFile]) -> None:
    for file in files:
        with suppress(BlobError):
            await within(deps.blobs.delete(file.blob))


def _check_weights(head: _WeightsHead, config: dict[str, Any], base: Base) -> None:
    """Check the header, and its layers where the files of the base are here, else on the node.

    Raises Unpublishable.
    """
    header = head.header(config)
    with suppress(OSError, ValueError):  # not here, or not read; the nodes compare their hash
        check_layers(header, base.base_id, layers_of(Path(base.path)))
